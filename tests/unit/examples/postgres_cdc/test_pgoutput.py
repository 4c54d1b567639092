"""The relay of `examples/postgres_cdc`: messages of logical decoding as change events."""

from __future__ import annotations

import struct
from typing import Any

from examples.postgres_cdc.pgoutput import UNAVAILABLE, Decoder, Event

UNSENT = object()
TABLE, OID = "public.accounts", 7
RELATION = (
    b"R" + struct.pack(">i", OID) + b"public\0accounts\0d" + struct.pack(">h", 2)
    + b"\1id\0" + struct.pack(">Ii", 20, -1) + b"\0note\0" + struct.pack(">Ii", 25, -1)
)  # fmt: skip


def row(side: str, *values: Any) -> bytes:
    def column(value: Any) -> bytes:
        if value is UNSENT or value is None:
            return b"u" if value is UNSENT else b"n"
        text = str(value).encode()
        return b"t" + struct.pack(">i", len(text)) + text

    return side.encode() + struct.pack(">h", len(values)) + b"".join(map(column, values))


def events(kind: str, *rows: bytes) -> list[Event]:
    decoder = Decoder({TABLE: ("id",)})
    assert not list(decoder.events(1, RELATION))
    return list(decoder.events(9, kind.encode() + struct.pack(">i", OID) + b"".join(rows)))


def sides(event: Event) -> tuple[Any, ...]:
    assert event.value is not None
    return event.value["op"], event.value["before"], event.value["after"]


def test_rows_come_change_and_go() -> None:
    (created,) = events("I", row("N", 1, "a"))
    assert sides(created) == ("c", None, {"id": 1, "note": "a"})
    assert created.key == {"id": 1}
    assert created.value is not None
    assert created.value["source"]["lsn"] == 9
    (changed,) = events("U", row("N", 1, None))
    assert sides(changed) == ("u", None, {"id": 1, "note": None})
    gone, tombstone = events("D", row("K", 1, None))
    assert sides(gone) == ("d", {"id": 1}, None)
    assert tombstone == Event(TABLE, {"id": 1}, None)


def test_a_large_value_that_did_not_change_is_the_old_row_s_or_unavailable() -> None:
    (whole,) = events("U", row("O", 1, "large"), row("N", 1, UNSENT))
    assert sides(whole) == ("u", {"id": 1, "note": "large"}, {"id": 1, "note": "large"})
    (unknown,) = events("U", row("N", 1, UNSENT))
    assert sides(unknown) == ("u", None, {"id": 1, "note": UNAVAILABLE})


def test_another_key_is_a_delete_and_an_insert() -> None:
    gone, tombstone, created = events("U", row("K", 1, None), row("N", 2, UNSENT))
    assert sides(gone) == ("d", {"id": 1}, None)
    assert (tombstone.key, tombstone.value) == ({"id": 1}, None)
    assert sides(created) == ("c", None, {"id": 2, "note": UNAVAILABLE})

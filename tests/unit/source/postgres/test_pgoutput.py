"""Messages of logical decoding as records."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from calve.sink_core.source.base import BadRow, Record
from calve.sink_core.source.postgres.pgoutput import Change, Decoder
from calve.sink_core.source.postgres.records import UNAVAILABLE, Debezium, Rows, Shape
from calve.sink_core.source.postgres.values import Types
from tests.codes import names

UNSENT = object()
OID = 7
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


BEGIN = b"B" + struct.pack(">qqI", 100, 0, 5)
TYPES = Types({}, {})


def changes(kind: str, *rows: bytes, shape: Shape | None = None, relation: bytes = RELATION) -> list[Change]:
    decoder = Decoder(shape or Debezium("bank"), TYPES, lambda schema, table: f"{schema}.{table}")
    assert not [*decoder.read(1, BEGIN), *decoder.read(1, relation)]
    told = list(decoder.read(9, kind.encode() + struct.pack(">i", OID) + b"".join(rows)))
    return [each for each in told if isinstance(each, Change)]


def records(kind: str, *rows: bytes, **options: Any) -> Sequence[Record]:
    [change] = changes(kind, *rows, **options)
    assert not change.bad
    return change.records


def bad(kind: str, *rows: bytes, **options: Any) -> BadRow:
    [change] = changes(kind, *rows, **options)
    assert not change.records
    [row] = change.bad
    return row


def sides(record: Record) -> tuple[Any, ...]:
    event = json.loads(record.value or b"")
    return event["op"], event["before"], event["after"]


def test_rows_come_change_and_go() -> None:
    (created,) = records("I", row("N", 1, "a"))
    assert sides(created) == ("c", None, {"id": 1, "note": "a"})
    assert (created.topic, created.key) == ("public.accounts", b'{"id":1}')
    source = json.loads(created.value or b"")["source"]
    assert (source["lsn"], source["txId"], source["table"], source["snapshot"]) == (9, 5, "accounts", "false")
    (changed,) = records("U", row("N", 1, None))
    assert sides(changed) == ("u", None, {"id": 1, "note": None})
    gone, tombstone = records("D", row("K", 1, None))
    assert sides(gone) == ("d", {"id": 1}, None)
    assert (tombstone.key, tombstone.value) == (b'{"id":1}', None)


def test_a_large_value_that_did_not_change_is_the_old_row_s_or_unavailable() -> None:
    (whole,) = records("U", row("O", 1, "large"), row("N", 1, UNSENT))
    assert sides(whole) == ("u", {"id": 1, "note": "large"}, {"id": 1, "note": "large"})
    (unknown,) = records("U", row("N", 1, UNSENT))
    assert sides(unknown) == ("u", None, {"id": 1, "note": json.loads(UNAVAILABLE)})


def test_another_key_is_a_delete_and_an_insert() -> None:
    gone, tombstone, created = records("U", row("K", 1, None), row("N", 2, UNSENT))
    assert sides(gone) == ("d", {"id": 1}, None)
    assert (tombstone.key, tombstone.value) == (b'{"id":1}', None)
    assert sides(created) == ("c", None, {"id": 2, "note": json.loads(UNAVAILABLE)})


def test_a_row_alone_is_itself_and_a_tombstone() -> None:
    (created,) = records("I", row("N", 1, "a"), shape=Rows())
    assert json.loads(created.value or b"") == {"id": 1, "note": "a"}
    (gone,) = records("D", row("K", 1, None), shape=Rows())
    assert (gone.key, gone.value) == (b'{"id":1}', None)


def test_a_table_without_a_key_has_none() -> None:
    keyless = RELATION.replace(b"\1id", b"\0id")
    (created,) = records("I", row("N", 1, "a"), relation=keyless)
    assert created.key is None
    # No tombstone can name it.
    (gone,) = records("D", row("O", 1, "a"), relation=keyless)
    assert sides(gone) == ("d", {"id": 1, "note": "a"}, None)
    error = bad("D", row("O", 1, "a"), relation=keyless, shape=Rows()).error
    names(error, "public.accounts", "shape row")


def test_what_is_no_text_is_a_bad_row_with_its_place() -> None:
    message = row("N", 1, "a").replace(b"a", b"\xff")
    decoder = Decoder(Debezium("bank"), Types({}, {}, checked=True), lambda *_: "t")
    assert not [*decoder.read(1, BEGIN), *decoder.read(1, RELATION)]
    [change] = decoder.read(9, b"I" + struct.pack(">i", OID) + message)
    assert isinstance(change, Change)
    assert change.bad[0].error.startswith("'utf-8' codec can't decode byte 0xff")
    assert dict(change.bad[0].where) == {"table": "public.accounts", "lsn": "0/64", "seq": 1}


@pytest.mark.parametrize(("seq", "kinds"), [(1, "I"), (3, "IUD")])
def test_changes_are_counted_within_their_transaction(seq: int, kinds: str) -> None:
    decoder = Decoder(Debezium("bank"), TYPES, lambda *_: "t")
    assert not [*decoder.read(1, BEGIN), *decoder.read(1, RELATION)]
    for kind in kinds:
        [change] = decoder.read(9, kind.encode() + struct.pack(">i", OID) + row("K" if kind == "D" else "N", 1, "a"))
    assert isinstance(change, Change)
    assert (change.commit_lsn, change.xid, change.seq) == (100, 5, seq)

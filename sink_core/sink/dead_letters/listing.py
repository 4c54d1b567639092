"""The dead letters as a reader of their table sees them: the newest first, and how many there are of each error."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from calve.sink_core.codes import Code
from calve.sink_core.config.references import HIDDEN, names_a_secret
from calve.sink_core.errors import TableUnusable, printable
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.read.rows import rows_where
from calve.sink_core.sink.loop.session import Session

PREVIEW = 80
"""Characters shown of a value at most."""

_HEAD = 4096
"""Bytes of a value looked at for its preview."""

_COLUMNS = ("batch_id", "stage", "error", "topic", "partition", "offset", "timestamp", "value")
# What differs from record to record in messages of one kind: quoted values and numbers.
_DIFFERS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?<![\w.])-?\d[\d.,eE+-]*\b")
_MEMBER = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:\s*)("(?:[^"\\]|\\.)*"?|[^\s,{}\[\]"]+)')
_NESTED = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*(?=[\[{])')
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter to be shown. `timestamp_ms` is None for a record without one.

    `preview` is the beginning of the value as one line, what looks like a secret by its name hidden.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    stage: str
    error: str
    preview: str
    value_bytes: int
    batch_id: str


@dataclass(frozen=True, slots=True)
class Letters:
    """`newest` of `total` that were asked for; `by_error` counts all of these, the most frequent first.

    Errors that differ in quoted values and numbers only are counted as one, `…` in their place.
    """

    table: str
    total: int
    newest: tuple[Letter, ...]
    by_error: tuple[tuple[str, int], ...]


def letters(session: Session, *, limit: int, topic: str | None = None, since_ms: int | None = None) -> Letters:
    """The last `limit` by their records' timestamps, of `topic` and since `since_ms` if given.

    Reads the head of the table and no log: what is published and not committed yet is not among them. Memory: a batch
    of rows and `limit` of them. Raises TableUnusable if there is no such table, Unreachable.
    """
    name = session.pipeline.dead_letter_table
    table = load_if_there(session.catalog, name)
    if table is None:
        raise TableUnusable(
            f"{name}: there is no such table", hint="the first run creates it: calve run FILE", code=Code.NOT_RUN_YET
        )
    of_topic = {} if topic is None else {"topic": topic}
    since = {} if since_ms is None else {"timestamp": since_ms * 1000}
    return _listed(name, rows_where(table, _COLUMNS, equal=of_topic, at_least=since), limit)


def _listed(name: str, rows: Iterable[pa.RecordBatch], limit: int) -> Letters:
    newest: list[tuple[tuple[Any, ...], Letter]] = []
    errors: Counter[str] = Counter()
    for batch in rows:
        places = batch.select([c for c in _COLUMNS if c != "value"]).to_pylist()
        for i, row in enumerate(places):
            errors[f"{row['stage']}: {folded(row['error'])}"] += 1
            moment = _ms(row["timestamp"])
            key = (-1 if moment is None else moment, row["topic"], row["partition"], row["offset"], len(errors), i)
            if len(newest) < limit or (newest and key > newest[0][0]):
                value = cast("bytes | None", batch.column("value")[i].as_py())
                letter = _letter(row, moment, value)
                (heapq.heappush if len(newest) < limit else heapq.heapreplace)(newest, (key, letter))
    shown = tuple(letter for _, letter in sorted(newest, key=lambda pair: pair[0], reverse=True))
    counted = tuple(sorted(errors.items(), key=lambda pair: (-pair[1], pair[0])))
    return Letters(name, errors.total(), shown, counted)


def _letter(row: dict[str, Any], moment: int | None, value: bytes | None) -> Letter:
    return Letter(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=moment,
        stage=row["stage"],
        error=shown_error(row["error"]),
        preview=preview(value),
        value_bytes=len(value or b""),
        batch_id=row["batch_id"],
    )


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def folded(error: str) -> str:
    """The message without what differs from record to record."""
    return _DIFFERS.sub("…", error)


def shown_error(error: str) -> str:
    """The message as it may be shown; what it quotes is hidden if the field it begins with is named like a secret."""
    error = printable(error)
    named, colon, said = error.partition(": ")
    return f"{named}{colon}{_QUOTED.sub(HIDDEN, said)}" if colon and names_a_secret(named) else error


def preview(value: bytes | None) -> str:
    """The beginning of a value as one line; of JSON, members named like a secret are hidden, also of a broken one."""
    if value is None:
        return ""
    try:
        text = value[:_HEAD].decode(errors="strict" if len(value) <= _HEAD else "ignore")
    except UnicodeDecodeError:
        return value[: PREVIEW // 2 - 1].hex() + ("…" if len(value) > PREVIEW // 2 - 1 else "")
    text = _without_nested(_MEMBER.sub(_without_secret, text))
    line = printable(text)
    return line if len(line) <= PREVIEW and len(value) <= _HEAD else line[: PREVIEW - 1] + "…"


def _without_secret(found: re.Match[str]) -> str:
    return f'"{found[1]}"{found[2]}"{HIDDEN}"' if names_a_secret(found[1]) else found[0]


def _without_nested(text: str) -> str:
    """Cut off where a list or an object begins that is named like a secret."""
    secret = next((found for found in _NESTED.finditer(text) if names_a_secret(found[1])), None)
    return text if secret is None else text[: secret.end()] + HIDDEN

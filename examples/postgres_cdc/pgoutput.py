"""Messages of PostgreSQL's logical decoding (pgoutput, version 1) into change events as Debezium makes them. Pure.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNAVAILABLE = "__debezium_unavailable_value"
BOOLEAN, INTEGERS, TIMESTAMPTZ = 16, (20, 21, 23), 1184
"""Ids of types; values of all others are their texts (numeric too, as with `decimal.handling.mode: string`)."""

_EPOCH_2000_US = 946_684_800_000_000
_UNSENT = object()

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """A Kafka record of the table `table` (`schema.name`); without a value it is a tombstone."""

    table: str
    key: Row
    value: Row | None


@dataclass(frozen=True, slots=True)
class _Relation:
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]


class Decoder:
    """Reads messages in the order of commits. `keys` are the columns of each table's primary key, by `schema.name`."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = keys
        self._relations: dict[int, _Relation] = {}
        self._transaction, self._ms = 0, 0
        self.end_lsn = 0
        """Where the last whole transaction ends."""

    def events(self, lsn: int, message: bytes) -> Iterator[Event]:
        """What a message of logical decoding at `lsn` says; most say of one row that it changed."""
        read = _Reader(message)
        kind = read.char()
        if kind == "B":
            _final_lsn, committed_us, self._transaction = read.unpack("qqi")
            self._ms = (committed_us + _EPOCH_2000_US) // 1000
        elif kind == "C":
            _flags, _commit_lsn, self.end_lsn, _committed_us = read.unpack("bqqq")
        elif kind == "R":
            (number,) = read.unpack("i")
            self._relations[number] = read.relation()
        elif kind in "IUD":
            (number,) = read.unpack("i")
            relation, sides = self._relations[number], dict[str, Row]()
            while not read.done:
                side = read.char()
                sides[side] = read.row(relation)
            yield from self._changed(relation, lsn, kind, sides)

    def _changed(self, relation: _Relation, lsn: int, kind: str, sides: Mapping[str, Row]) -> Iterator[Event]:
        """Sides: N is the new row, O the old one, K the old one's key if that is all there is."""
        table = f"{relation.schema}.{relation.name}"
        columns = self._keys[table]
        before, after = sides.get("O"), sides.get("N")
        if before is not None and after is not None:
            # Large values that did not change come with the old row, if at all.
            after = {name: before[name] if value is _UNSENT else value for name, value in after.items()}
        if "K" in sides:
            before = {name: sides["K"][name] for name in columns}
        old, new = (None if row is None else {name: row[name] for name in columns} for row in (before, after))
        source = {
            "connector": "postgresql",
            "schema": relation.schema,
            "table": relation.name,
            "txId": self._transaction,
            "lsn": lsn,
            "ts_ms": self._ms,
        }

        def event(op: str, key: Row, before: Row | None, after: Row | None) -> Event:
            rows = {"before": _sent(before), "after": _sent(after)}
            return Event(table, key, {**rows, "source": source, "op": op, "ts_ms": self._ms})

        if old is not None and new != old:
            # As Debezium does it: another key is a delete and an insert.
            yield event("d", old, before, None)
            yield Event(table, old, None)
            kind, before = "I", None
        if new is not None:
            yield event("c" if kind == "I" else "u", new, before, after)


class _Reader:
    """A message, from its beginning on."""

    def __init__(self, message: bytes) -> None:
        self._message, self._at = message, 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._message)

    def unpack(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(f">{layout}", self._message, self._at)
        self._at += struct.calcsize(f">{layout}")
        return found

    def take(self, size: int) -> bytes:
        self._at += size
        return self._message[self._at - size : self._at]

    def char(self) -> str:
        return self.take(1).decode()

    def text(self) -> str:
        text = self.take(self._message.index(0, self._at) - self._at).decode()
        self._at += 1
        return text

    def relation(self) -> _Relation:
        schema, name = self.text(), self.text()
        _identity, number = self.unpack("bh")
        columns: list[tuple[str, int]] = []
        for _ in range(number):
            _flags = self.take(1)
            column = self.text()
            kind, _modifier = self.unpack("Ii")
            columns.append((column, kind))
        return _Relation(schema, name, tuple(columns))

    def row(self, relation: _Relation) -> Row:
        self.unpack("h")
        return {column: self._value(kind) for column, kind in relation.columns}

    def _value(self, kind: int) -> object:
        how = self.char()
        if how == "n":
            return None
        if how == "u":
            return _UNSENT
        (size,) = self.unpack("i")
        return value_of(self.take(size).decode(), kind)


def value_of(text: str, kind: int) -> object:
    """As Debezium has it in JSON, of a type's text in time zone UTC."""
    if kind == BOOLEAN:
        return text == "t"
    if kind in INTEGERS:
        return int(text)
    return text.replace(" ", "T").removesuffix("+00") + "Z" if kind == TIMESTAMPTZ else text


def _sent(row: Row | None) -> Row | None:
    return row and {name: UNAVAILABLE if value is _UNSENT else value for name, value in row.items()}

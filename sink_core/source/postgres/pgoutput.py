"""Messages of PostgreSQL's logical decoding (`pgoutput`, version 1) into the records of row changes. Pure.

A row layout is compiled once for each relation: a column's name and how its text becomes JSON. Rows are never made
into Python values.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from calve.sink_core.source.base import BadRow, Record
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.records import NEW, Cells, Encode, Layout, Origin, Shape, as_json
from calve.sink_core.source.postgres.relations import ReadTable, TopicOf, key_of
from calve.sink_core.source.postgres.values import NULL, Types, as_is
from calve.sink_core.source.postgres.visibility import lsn_text

_EPOCH_2000_MS = 946_684_800_000
_ABSENT, _TEXT = ord("n"), ord("t")
_size = struct.Struct(">i").unpack_from
_oid = struct.Struct(">I").unpack_from


class Change(NamedTuple):
    """A change of rows: its transaction's place and number, and what comes of it. `seq` counts changes within it."""

    oid: int
    xid: int
    commit_lsn: int
    seq: int
    records: Sequence[Record] = ()
    bad: Sequence[BadRow] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction ends: the next one's commit lies at or behind `end_lsn`."""

    commit_lsn: int
    end_lsn: int


@dataclass(slots=True)
class Decoder:
    """Reads messages in the order of commits. `topic_of` names the topic of a schema's table, for relations that are
    not among the `tables` that were read, by id; `keys` are those of the catalog, by relation id (see `key_of`). Of
    relations that are `excluded` changes have no records.
    """

    shape: Shape
    types: Types
    topic_of: TopicOf
    encode: Encode = as_json
    keys: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    tables: Mapping[int, ReadTable] = field(default_factory=dict[int, ReadTable])
    excluded: Collection[int] = frozenset()
    layouts: dict[int, Layout] = field(default_factory=dict[int, Layout])
    _xid: int = 0
    _commit_lsn: int = 0
    _ms: int = 0
    _seq: int = 0

    def read(self, lsn: int, message: bytes) -> Sequence[Change | Committed]:
        """What a message at `lsn` says; nothing for those that only prepare others."""
        kind = message[0]
        if kind in b"IUD":
            return (self._change(lsn, kind, message),)
        if kind == ord("B"):
            self._commit_lsn, committed_us, self._xid = struct.unpack_from(">qqI", message, 1)
            self._ms, self._seq = committed_us // 1000 + _EPOCH_2000_MS, 0
        elif kind == ord("C"):
            commit_lsn, end_lsn = struct.unpack_from(">qq", message, 2)
            return (Committed(commit_lsn, end_lsn),)
        elif kind == ord("R"):
            self._relation(message)
        elif kind == ord("T"):
            return list(self._truncated(lsn, message))
        return ()

    def _change(self, lsn: int, kind: int, message: bytes) -> Change:
        self._seq += 1
        (oid,) = _oid(message, 1)
        if oid in self.excluded:
            return self._told(oid, ())
        layout = self.layouts[oid]
        try:
            origin = self._origin(lsn)
            if message[5] == NEW:
                # Most changes have nothing else.
                cells, _ = _cells(layout, message, 6)
                records: Sequence[Record] = (self.shape.written(layout, kind, None, cells, origin),)
            else:
                records = self.shape.changed(layout, kind, _sides(layout, message), origin)
            records = self.encode(layout, records)
        except ValueError as error:
            return self._told(oid, (), (self._bad(layout, message, error),))
        return self._told(oid, records)

    def _truncated(self, lsn: int, message: bytes) -> Iterator[Change]:
        number, _options = struct.unpack_from(">iB", message, 1)
        for oid in struct.unpack_from(f">{number}I", message, 6):
            self._seq += 1
            if oid in self.excluded:
                yield self._told(oid, ())
                continue
            layout = self.layouts[oid]
            try:
                yield self._told(oid, self.encode(layout, self.shape.truncated(layout, self._origin(lsn))))
            except ValueError as error:
                yield self._told(oid, (), (self._bad(layout, message, error),))

    def _told(self, oid: int, records: Sequence[Record], bad: Sequence[BadRow] = ()) -> Change:
        return Change(oid, self._xid, self._commit_lsn, self._seq, records, bad)

    def _origin(self, lsn: int) -> Origin:
        return Origin(self._xid, lsn, self._ms)

    def _bad(self, layout: Layout, message: bytes, error: ValueError) -> BadRow:
        where = {"table": layout.name, "lsn": lsn_text(self._commit_lsn), "seq": self._seq}
        return BadRow(message, str(error), FlatMap(where))

    def _relation(self, message: bytes) -> None:
        (oid,) = _oid(message, 1)
        schema, at = _text(message, 5)
        table, at = _text(message, at)
        number, at = struct.unpack_from(">h", message, at + 1)[0], at + 3
        columns, identity = list[tuple[str, int]](), list[str]()
        for _ in range(number):
            flags = message[at]
            name, at = _text(message, at + 1)
            (kind,) = struct.unpack_from(">I", message, at)
            at += 8
            columns.append((name, kind))
            if flags & 1:
                identity.append(name)
        read = self.tables.get(oid)
        topic = read.topic if read is not None else self.topic_of(schema, table)
        orders = [order for order in (read.key if read is not None else (), self.keys.get(oid, ())) if order]
        key = key_of([name for name, _ in columns], identity, orders)
        self.layouts[oid] = Layout.of(schema, table, topic, columns, key, self.types)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def _sides(layout: Layout, message: bytes) -> dict[int, Cells]:
    """The rows of a change, by what they are of it."""
    sides, at = dict[int, Cells](), 5
    while at < len(message):
        side = message[at]
        sides[side], at = _cells(layout, message, at + 1)
    return sides


def _cells(layout: Layout, message: bytes, at: int) -> tuple[Cells, int]:
    """A row that begins at `at`, and where it ends."""
    at += 2
    cells: Cells = []
    add = cells.append
    for to_json in layout.to_json:
        kind = message[at]
        if kind == _TEXT:
            begin = at + 5
            at = begin + _size(message, at + 1)[0]
            add(message[begin:at] if to_json is as_is else to_json(message[begin:at]))
        else:
            add(NULL if kind == _ABSENT else None)
            at += 1
    return cells, at

"""The records of row changes, in the shapes that consumers know: change events of Debezium, or rows alone. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calve.sink_core.source.base import Record
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.values import NULL, ToJson, Types, quoted

UNAVAILABLE_TEXT = "__debezium_unavailable_value"
"""What Debezium has for a large value that did not change and that the log does not have."""

UNAVAILABLE = quoted(UNAVAILABLE_TEXT)

INSERT, UPDATE = ord("I"), ord("U")
"""Kinds of changes that leave a row, as pgoutput has them."""

NEW, OLD, KEY = ord("N"), ord("O"), ord("K")
"""Sides of a change: the new row, the old one, the old one's key if that is all there is."""

Cells = list[bytes | None]
"""JSON of a row's columns; None is a large value that was not sent."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a relation, compiled. `row_form` and `key_form` are JSON with a `%b` for each value; `key` are
    places of those that make a record's key, `kinds` the ids of the columns' types, of domains those of their bases.
    """

    schema: str
    table: str
    topic: str
    where: FlatMap
    names: tuple[str, ...]
    row_form: bytes
    key_form: bytes
    to_json: tuple[ToJson, ...]
    key: tuple[int, ...]
    kinds: tuple[int, ...]

    @classmethod
    def of(
        cls, schema: str, table: str, topic: str, columns: Sequence[tuple[str, int]], key: Sequence[str], types: Types
    ) -> Layout:
        """Of columns with the ids of their types, and the names of those that make the key."""
        names = [name for name, _ in columns]
        return cls(
            schema,
            table,
            topic,
            FlatMap({"table": f"{schema}.{table}"}),
            tuple(names),
            _form(names),
            _form(key),
            tuple(types.to_json(kind) for _, kind in columns),
            tuple(names.index(name) for name in key),
            tuple(types.base(kind) for _, kind in columns),
        )

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def record(self, key: bytes | None, value: bytes | None, at_ms: int) -> Record:
        return Record(self.topic, key, value, (), at_ms, None, self.where)

    def row(self, cells: Cells) -> bytes:
        """The JSON of all columns."""
        if None in cells:
            cells = [UNAVAILABLE if cell is None else cell for cell in cells]
        return self.row_form % (*cells,)

    def key_of(self, cells: Cells) -> bytes | None:
        """The JSON of the key's columns; None for a table without a key. Raises ValueError for one that was not
        sent.
        """
        if not self.key:
            return None
        key = [cells[at] for at in self.key]
        if None in key:
            lacking = self.names[self.key[key.index(None)]]
            raise ValueError(
                f"{self.name}: the log has no value of {lacking}, which is of the key: it is a large value that did "
                "not change. REPLICA IDENTITY FULL brings it"
            )
        return self.key_form % (*key,)


def _form(names: Sequence[str]) -> bytes:
    return b"{%b}" % b",".join(quoted(name).replace(b"%", b"%%") + b":%b" for name in names)


Encode = Callable[[Layout, Sequence[Record]], Sequence[Record]]
"""Makes records of JSON those that are sent."""


def as_json(_layout: Layout, records: Sequence[Record]) -> Sequence[Record]:
    """The records as they are."""
    return records


class Origin(NamedTuple):
    """Where a change comes from: its transaction, its place in the log, and when it was committed."""

    xid: int
    lsn: int
    ms: int


class Shape(ABC):
    """What the records of changes look like."""

    def changed(self, layout: Layout, kind: int, sides: Mapping[int, Cells], origin: Origin) -> Sequence[Record]:
        """Of one changed row. Another key is a delete and an insert. Raises ValueError for what can't be said."""
        new, old = sides.get(NEW), sides.get(OLD)
        before = sides.get(KEY) or old
        if new is not None and before is not None and None in new:
            # Large values that did not change come with the old row, if at all; with its key alone those of the key.
            sent = range(len(new)) if old is not None else layout.key
            new = [before[at] if cell is None and at in sent else cell for at, cell in enumerate(new)]
        records = list[Record]()
        old_key = layout.key_of(before) if before is not None else None
        if new is None or (before is not None and kind == UPDATE and layout.key_of(new) != old_key):
            shown = None if before is None else layout.row(before) if old is not None else old_key
            records += self.deleted(layout, old_key, shown, origin)
            kind, old = INSERT, None
        if new is not None:
            records.append(self.written(layout, kind, old, new, origin))
        return records

    @abstractmethod
    def written(self, layout: Layout, kind: int, old: Cells | None, new: Cells, origin: Origin) -> Record:
        """The record of a row that is there now."""

    @abstractmethod
    def deleted(self, layout: Layout, key: bytes | None, before: bytes | None, origin: Origin) -> Sequence[Record]:
        """The records of a row that is gone. Raises ValueError where it can't be named."""

    @abstractmethod
    def truncated(self, layout: Layout, origin: Origin) -> Sequence[Record]:
        """The records of a table that was emptied. Raises ValueError where that can't be said."""

    @abstractmethod
    def found(self, layout: Layout, cells: Cells, origin: Origin) -> Record:
        """The record of a row that was there already."""


class Rows(Shape):
    """The row alone; a tombstone for one that is gone."""

    def written(self, layout: Layout, kind: int, old: Cells | None, new: Cells, origin: Origin) -> Record:  # noqa: ARG002
        return layout.record(layout.key_of(new), layout.row(new), origin.ms)

    def deleted(self, layout: Layout, key: bytes | None, before: bytes | None, origin: Origin) -> Sequence[Record]:  # noqa: ARG002
        if key is None:
            raise ValueError(f"a delete in {layout.name}, which has no key: shape row can't say which row is gone")
        return (layout.record(key, None, origin.ms),)

    def truncated(self, layout: Layout, origin: Origin) -> Sequence[Record]:  # noqa: ARG002
        raise ValueError(f"TRUNCATE of {layout.name}: shape row can't say it")

    def found(self, layout: Layout, cells: Cells, origin: Origin) -> Record:
        return self.written(layout, INSERT, None, cells, origin)


_EVENT = (
    b'{"before":%%b,"after":%%b,"source":{%b,"snapshot":"%%b","txId":%%d,"lsn":%%d,"ts_ms":%%d},"op":"%%b","ts_ms":%%d}'
)


class Debezium(Shape):
    """Change events as Debezium makes them, without their schema: `before`, `after`, `source`, `op` and `ts_ms`.

    A delete is followed by a tombstone, if there is a key. `before` of a row of which the log has the key alone is that
    key. https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
    """

    def __init__(self, database: str) -> None:
        self._forms: dict[str, bytes] = {}
        self._database = quoted(database)

    def written(self, layout: Layout, kind: int, old: Cells | None, new: Cells, origin: Origin) -> Record:
        before = NULL if old is None else layout.row(old)
        value = self._event(layout, before, layout.row(new), b"c" if kind == INSERT else b"u", origin)
        return layout.record(layout.key_of(new), value, origin.ms)

    def deleted(self, layout: Layout, key: bytes | None, before: bytes | None, origin: Origin) -> Sequence[Record]:
        value = self._event(layout, before or NULL, NULL, b"d", origin)
        event = layout.record(key, value, origin.ms)
        return (event,) if key is None else (event, layout.record(key, None, origin.ms))

    def truncated(self, layout: Layout, origin: Origin) -> Sequence[Record]:
        return (layout.record(None, self._event(layout, NULL, NULL, b"t", origin), origin.ms),)

    def found(self, layout: Layout, cells: Cells, origin: Origin) -> Record:
        value = self._event(layout, NULL, layout.row(cells), b"r", origin)
        return layout.record(layout.key_of(cells), value, origin.ms)

    def _event(self, layout: Layout, before: bytes, after: bytes, op: bytes, origin: Origin) -> bytes:
        form = self._forms.get(layout.topic) or self._form(layout)
        snapshot = b"true" if op == b"r" else b"false"
        return form % (before, after, snapshot, origin.xid, origin.lsn, origin.ms, op, origin.ms)

    def _form(self, layout: Layout) -> bytes:
        names = (self._database, quoted(layout.schema), quoted(layout.table))
        source = b'"connector":"postgresql","db":%b,"schema":%b,"table":%b' % names
        self._forms[layout.topic] = made = _EVENT % source.replace(b"%", b"%%")
        return made

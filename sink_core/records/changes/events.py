"""Change events: which rows of a table come and go by them, whatever the envelope. Pure.

| event | row |
|---|---|
| of a row that came, or was changed | comes; if the row before had another key, the one of that goes |
| of a row that went | goes |
| of a truncate | stops, or is left out |
| of anything else | is left out if the envelope knows it, else bad |
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.errors import BadRecord, ConfigError
from calve.sink_core.records.changes.kafka_key import KEY, key_parts, keyless
from calve.sink_core.records.changes.rows import NO_ORDER
from calve.sink_core.records.changes.unavailable import KEEP, UNAVAILABLE, can_keep, stands_in, with_marker
from calve.sink_core.records.columns.arrow import Bools, nulls, true
from calve.sink_core.records.decode.decoded import Decoded, sifted

ORDER_COLUMN = "_order"
"""What a table keeps of the order of its rows' last changes, where the rows themselves don't tell."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Said:
    """What events say, each one of these at most; the others nobody understands. Of what comes some was `made` just
    now, or read as it stands.
    """

    comes: Bools
    made: Bools
    goes: Bools
    truncates: Bools
    left_out: Bools


class Envelope(Protocol):
    """In which words events say what became of a row, and where they have it."""

    @property
    def new(self) -> str:
        """The field with the row that comes, with a dot behind it; nothing if it is all of the event."""
        ...

    @property
    def gone(self) -> str:
        """That with the row that goes."""
        ...

    @property
    def has_order(self) -> bool:
        """Whether the event says what is newer. Rows then have it in `ORDER_COLUMN`, else in a column of their own."""
        ...

    def fields(self, row: StructType, before: StructType, order: Sequence[str], first_id: int) -> list[NestedField]:
        """What is read of an event: a `row` that comes, what is needed of the one `before`, both by the table's ids,
        and the whole number at `order` if the event has it.
        """
        ...

    def row_columns(self, events: Schema, *, table: str) -> Schema:
        """The columns of the rows in events of a schema. Raises ConfigError if it has none."""
        ...

    def said(self, events: pa.RecordBatch) -> Said:
        """What the events say."""
        ...

    def puzzle(self, events: pa.RecordBatch, row: int) -> str:
        """Why nobody understands this event."""
        ...

    def rows(self, events: pa.RecordBatch, *, goes: bool = False) -> pa.StructArray:
        """The rows that come, or go; with no more than the table's columns."""
        ...

    def before(self, events: pa.RecordBatch) -> pa.StructArray | None:
        """The rows before the change, if events tell."""
        ...


@dataclass(frozen=True, slots=True)
class Meant:
    """What events do: `rows` come, or those of their keys go where `deletes` says so; `places` are their events'."""

    rows: pa.RecordBatch
    deletes: Bools
    places: Places


class Events:
    """Reads the events of one table, whose rows have `columns` and are told apart by `key` (names among them).

    `order_by` is the path of what says what is newer, if there is one: within the event or the row, as the envelope
    has it. `soft`: all of the row before is read, as far as it is there. `ignores_truncate`: a truncate is left out.
    `kafka_key`: the key is that of `keyed_events`. `keeps_old`: a row that was changed says `KEEP` where its event
    lacks a value.
    """

    def __init__(
        self,
        envelope: Envelope,
        columns: Schema,
        key: Sequence[str],
        *,
        table: str,
        order_by: str = "",
        soft: bool = False,
        ignores_truncate: bool = False,
        kafka_key: bool = False,
        keeps_old: bool = False,
    ) -> None:
        self._envelope, self._key, self._table = envelope, key, table
        self._ignores_truncate, self._kafka_key = ignores_truncate, kafka_key
        self._path = order_by.split(".") if order_by else []
        self._required = [field.name for field in columns.fields if field.required]
        self._kept = [f.name for f in columns.fields if keeps_old and f.name not in key and can_keep(f.field_type)]
        wanted = [field for field in columns.fields if soft or field.name in key]
        before, order = optional(StructType(*wanted)), self._path if envelope.has_order else []
        self.schema = Schema(*envelope.fields(columns.as_struct(), before, order, columns.highest_field_id + 1))

    def judge(self, decoded: Decoded) -> Decoded:
        """The events that change rows: of the others some are bad, and some are left out, neither good nor bad.

        Raises BadRecord for a truncate, unless these are left out.
        """
        events, bad = decoded.columns, dict[int, str]()
        said = self._envelope.said(events)
        if said.truncates.any() and not self._ignores_truncate:
            raise BadRecord(
                f"{self._table}: the source table was truncated, and on_truncate is stop; nothing was published",
                hint="set on_truncate: ignore to leave truncates out, and delete the rows by hand if they are to go",
                code=Code.TRUNCATED,
            )
        changes, left_out = said.comes | said.goes, said.left_out | said.truncates
        for row in np.flatnonzero(~changes & ~left_out).tolist():
            bad[row] = self._envelope.puzzle(events, row)
        for rows, message in self._faults(events, said):
            bad |= {row: message for row in np.flatnonzero(rows & changes).tolist() if row not in bad}
        if self._kafka_key:
            lacking = keyless(key_parts(events.column(KEY), self._key))
            bad |= {row: message for row, message in lacking.items() if changes[row] and row not in bad}
        return sifted(decoded, bad, np.flatnonzero(left_out).tolist())

    @property
    def rows_at(self) -> str:
        """The field with the row that comes; nothing if it is all of the event."""
        return self._envelope.new[:-1]

    def wanted(self, events: Schema) -> Schema:
        """Of what events need, by `schema`: what their rows that come do of the table."""
        if not (name := self.rows_at):
            return self._envelope.row_columns(events, table=self._table)
        found = next((field.field_type for field in events.fields if field.name == name), None)
        return Schema(*found.fields) if isinstance(found, StructType) else Schema()

    def meant(self, events: pa.RecordBatch) -> Meant:
        """What good events do."""
        said, envelope = self._envelope.said(events), self._envelope
        comes, goes = np.flatnonzero(said.comes), np.flatnonzero(said.goes)
        before = envelope.before(events)
        moved = said.comes & self._other_key(events, before) if before is not None else said.comes & ~said.comes
        moves = np.flatnonzero(moved)
        # What was made, or comes from another key, has no old row of this one.
        keeping = (said.comes & ~said.made & ~moved)[comes]
        parts = [
            self._keyed(self._keeping(_taken(envelope.rows(events), comes), keeping), events, comes),
            self._keyed(_available(_taken(envelope.rows(events, goes=True), goes)), events, goes),
        ]
        if before is not None:
            parts.append(self._ordered(_available(_taken(before, moves)), events, moves))
        places = np.concatenate([comes, goes, moves])
        rows = pa.concat_tables(parts, promote_options="default")
        if self._path and envelope.has_order:
            rows = rows.append_column(ORDER_COLUMN, self._order(events, said).take(pa.array(places)))
        arrays = [column.combine_chunks() for column in rows.columns]
        return Meant(
            pa.RecordBatch.from_arrays(arrays, names=rows.column_names),
            np.repeat([False, True], [len(comes), len(goes) + len(moves)]),
            places,
        )

    def _faults(self, events: pa.RecordBatch, said: Said) -> list[tuple[Bools, str]]:
        """Which changes are bad for which reason."""
        new, gone = self._envelope.rows(events), self._envelope.rows(events, goes=True)
        at, gone_at = self._envelope.new, self._envelope.gone
        faults = [(said.comes & nulls(new), f"a change without {at[:-1]}: there is no row")]
        if not self._kafka_key:
            faults.append((said.goes & nulls(gone), f"a delete without {gone_at[:-1]}: nothing says which row goes"))
            key = ((name, nulls(pc.struct_field(gone, name))) for name in self._key)
            text = "null, and by it rows are told apart"
            faults += [(said.goes & lacking, f"{gone_at}{name}: {text}") for name, lacking in key]
        for name in self._required:
            lacking = said.comes & nulls(pc.struct_field(new, name))
            faults.append((lacking, f"{at}{name}: required, but missing or null"))
        for column in new.type:
            refused = stands_in(pc.struct_field(new, column.name), UNAVAILABLE)
            if column.name not in self._kept and refused.any():
                text = f"{at}{column.name}: {UNAVAILABLE}: the source did not send the value, which can't be kept"
                faults.append((said.comes & refused, text))
        for name in self._kept:
            marked = stands_in(pc.struct_field(new, name), KEEP)
            faults.append((said.comes & marked, f"{at}{name}: {KEEP!r}, which stands for values that were not sent"))
        if self._path:
            faults.append((nulls(self._order(events, said)), f"{'.'.join(self._path)}: {NO_ORDER}"))
        return faults

    def _keeping(self, rows: pa.Table, keeping: Bools) -> pa.Table:
        """With `KEEP` where the source did not send a value of a row that was there."""
        for name in self._kept:
            at, column = rows.schema.get_field_index(name), rows.column(name)
            rows = rows.set_column(at, name, with_marker(column, KEEP, stands_in(column, UNAVAILABLE) & keeping))
        return rows

    def _other_key(self, events: pa.RecordBatch, before: pa.StructArray) -> Bools:
        """Where the row before has another key than what comes; where it has none nobody knows of another."""
        own = events.column(KEY) if self._kafka_key else self._envelope.rows(events)
        other = np.zeros(len(events), np.bool_)
        known = np.ones(len(events), np.bool_)
        for name in self._key:
            was, now = pc.struct_field(before, name), pc.struct_field(own, name)
            known &= ~nulls(was)
            other |= true(pc.not_equal(was, now))
        return other & known

    def _keyed(self, rows: pa.Table, events: pa.RecordBatch, places: Places) -> pa.Table:
        """Rows of the events at these places, under the keys of the records if those count."""
        if not self._kafka_key:
            return rows
        for name, part in key_parts(events.column(KEY).take(pa.array(places)), self._key).items():
            rows = rows.set_column(rows.schema.get_field_index(name), name, part)
        return rows

    def _ordered(self, rows: pa.Table, events: pa.RecordBatch, places: Places) -> pa.Table:
        """Rows before the events at these places, in the order of what came in their place."""
        if not self._path or self._envelope.has_order:
            return rows
        name = self._path[0]
        order = pc.struct_field(self._envelope.rows(events), name).take(pa.array(places))
        return rows.set_column(rows.schema.get_field_index(name), name, order)

    def _order(self, events: pa.RecordBatch, said: Said) -> pa.Array:
        if self._envelope.has_order:
            column = events.column(self._path[0])
            return pc.struct_field(column, self._path[1:]) if len(self._path) > 1 else column
        new, gone = (pc.struct_field(self._envelope.rows(events, goes=goes), self._path) for goes in (False, True))
        return pc.if_else(pa.array(said.goes), gone, new)


def optional(struct: StructType) -> StructType:
    """The struct, any field of which may be missing."""
    return StructType(*(field.model_copy(update={"required": False}) for field in struct.fields))


def columns_under(events: Schema, names: Sequence[str], *, table: str) -> Schema:
    """The fields of the first struct of that name in an event. Raises ConfigError if there is none."""
    found = {field.name: field.field_type for field in events.fields}
    for name in names:
        kind = found.get(name)
        if isinstance(kind, StructType) and kind.fields:
            return Schema(*kind.fields)
    raise ConfigError(
        f"table {table}: the records show no columns: they have no object under {' or '.join(names)}",
        hint="name the columns under auto_create.columns, or correct envelope or the topic: are these change events?",
        code=Code.NO_SAMPLE,
    )


def with_order(columns: Schema) -> Schema:
    """Columns for a new table that keeps the order of its rows' last changes."""
    return Schema(*columns.fields, NestedField(columns.highest_field_id + 1, ORDER_COLUMN, LongType(), required=False))


def _taken(rows: pa.StructArray, places: Places) -> pa.Table:
    taken = rows.take(pa.array(places))
    return pa.Table.from_arrays(taken.flatten(), names=[field.name for field in taken.type])


def _available(rows: pa.Table) -> pa.Table:
    """With nulls where the source did not send a value."""
    for at, name in enumerate(rows.column_names):
        column = rows.column(at)
        rows = rows.set_column(at, name, with_marker(column, None, stands_in(column, UNAVAILABLE)))
    return rows

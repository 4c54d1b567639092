"""A table that a task writes: to files, or to the tasks that write them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.config.tables import Steps
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.records.changes.events import Events
from calve.sink_core.records.changes.kafka_key import keyed_events, keyed_rows, keyless, told_by
from calve.sink_core.records.changes.keys import RowKeyDecoder, orderless
from calve.sink_core.records.changes.rows import NO_ORDER, change_schema, changes_of
from calve.sink_core.records.columns.arrow import arrow_schema, column_of
from calve.sink_core.records.columns.evolution import evolved, number_of_columns
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, KAFKA_TIME, has_kafka_column
from calve.sink_core.records.columns.names import ALL, Names, names_of
from calve.sink_core.records.decode.decoded import Decoded, sifted
from calve.sink_core.records.keys import ReadKeys, key_type
from calve.sink_core.sink.write.spec import IngestSpec, TableSpec
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.format.target import RowWriter, Written
from calve.sink_core.tables.pieces import Outbox
from calve.sink_core.tables.row_changes import DELETED_COLUMN, RowChanges, columns_read, events_of

if TYPE_CHECKING:
    from calve.sink_core.records.transform.transform import Transforming
    from calve.sink_core.tables.format.target import ChangingWriter, RowCheck


class Output:
    """A table being written: to files, or into `outbox` if its rows are to be shuffled."""

    def __init__(
        self, table: TableSpec, spec: IngestSpec, file_prefix: str, budget: Budget, outbox: Outbox | None = None
    ) -> None:
        self.name = table.name
        self._table, self._spec, self._file_prefix, self._budget = table, spec, file_prefix, budget
        self._outbox = outbox if table.target.distribution != "none" else None
        self._writer: RowWriter | None = None

    @cached_property
    def table_schema(self) -> Schema:
        """The table's, looked at when it is needed: a task gets records for few of many tables."""
        return self._table.target.schema

    @cached_property
    def row_schema(self) -> pa.Schema:
        """Of what is written: the table's rows, or changes of them."""
        return change_schema(self.table_schema) if self._table.changes else arrow_schema(self.table_schema)

    def hold_against(self, existing: pa.RecordBatch) -> None:
        """Of the table's rows, once all changes were written: late changes are left out."""
        if self._writer is not None:
            cast("ChangingWriter", self._writer).hold_against(existing)

    def write(self, rows: pa.RecordBatch) -> None:
        with unreachable_as_ours(f"writing files of {self.name}"):
            if self._writer is None:
                self._writer = self._opened()
            self._writer.write(rows)

    def close(self) -> tuple[Written, ...]:
        with unreachable_as_ours(f"writing files of {self.name}"):
            return tuple(self._writer.close()) if self._writer else ()

    def abort(self) -> None:
        with suppress(Exception):
            if self._writer:
                self._writer.abort()

    def _opened(self) -> RowWriter:
        target, changes, budget = self._table.target, self._table.changes, self._budget
        if self._outbox is not None:
            number, bounded = self._spec.tables.index(self._table), self._table.existing is not None
            return target.spreader(self._outbox, number, budget, changes, bounded=bounded)
        if changes is None:
            return target.writer(self._file_prefix, budget)
        return target.change_writer(self._file_prefix, budget, changes, self._spec.topics)


class Feed(Output):
    """A data table: records are decoded by its own schema."""

    def __init__(
        self, table: TableSpec, spec: IngestSpec, file_prefix: str, budget: Budget, outbox: Outbox | None
    ) -> None:
        super().__init__(table, spec, file_prefix, budget, outbox)
        self.rule, self.evolve, self._any_case = table.rule, table.evolve, table.any_case
        self.dropped = Counter[str]()

    @cached_property
    def _columns(self) -> Schema:
        return columns_read(self.table_schema, self.changes, table=self.name)

    @cached_property
    def events(self) -> Events | None:
        """What reads the records, if these are change events."""
        return events_of(self.changes, self._columns, table=self.name)

    def wanted(self, decoded: Decoded) -> Schema | None:
        """What records need that the table lacks and may be given."""
        if decoded.wanted is None or self.events is None:
            return decoded.wanted
        wanted = self.events.wanted(decoded.wanted)
        return wanted if evolved(self.table_schema, wanted, self.evolve) else None

    @cached_property
    def steps(self) -> Steps:
        """As `evolve`, for what is read: that may have fields that are no columns, and the other way round."""
        if self.evolve.max_columns is None:
            return self.evolve
        read, table = (number_of_columns(of.as_struct()) for of in (self.schema, self.table_schema))
        return Steps(self.evolve, self.evolve.max_columns + read - table)

    @cached_property
    def schema(self) -> Schema:
        """What is read from the values."""
        if self.events:
            return self.events.schema
        if self._table.transform is None:
            return self._columns
        # Imported where it is needed: a task without transforms starts without DuckDB.
        from calve.sink_core.records.transform.transform import input_schema

        return input_schema(self._table.transform, self._columns)

    @cached_property
    def transforming(self) -> Transforming | None:
        """What makes rows of that."""
        if self._table.transform is None:
            return None
        from calve.sink_core.records.transform.transform import Transforming

        return Transforming(self._table.transform, self._columns, table=self.name, key=self.key_type)

    @cached_property
    def key_type(self) -> pa.DataType:
        """What SQL sees keys as."""
        return key_type(self._table.keys_as)

    @cached_property
    def names(self) -> Names:
        """Under which records have them."""
        within = self.events.rows_at if self.events else ""
        # What SQL doesn't name it leaves out on purpose.
        ignored = (ALL,) if self._table.transform else self._table.ignored
        mapping = self._table.target.names
        strict = self._table.strict and ALL not in ignored
        return names_of(
            self.schema,
            mapping,
            any_case=self._any_case,
            within=within,
            ignored=ignored,
            strict=strict,
            rule=self._table.target.column_rule,
        )

    @cached_property
    def _has_kafka_column(self) -> bool:
        return has_kafka_column(self.table_schema, table=self.name)

    @property
    def changes(self) -> RowChanges | None:
        """How records change rows that are there, if they do."""
        return self._table.changes

    @property
    def by_kafka_key(self) -> bool:
        """Whether rows are told apart by the records' Kafka keys."""
        return self._table.changes is not None and self._table.changes.kafka_key

    @cached_property
    def _row_keys(self) -> RowKeyDecoder:
        return RowKeyDecoder(self._key_columns)

    def gone(self, raw: Sequence[bytes | None], read: ReadKeys, places: Sequence[int]) -> Decoded:
        """The keys of rows that go, by those of the tombstones at some places among those given."""
        if self.changes and self.changes.order_by:
            return orderless(len(places), self._key_columns, self.changes.order_by)
        if not self.by_kafka_key:
            keys = self._row_keys.decode([raw[place] for place in places])
        else:
            bad = {at: replace(read.bad[place], index=at) for at, place in enumerate(places) if place in read.bad}
            keys = told_by(read.of(self.key_type, places), self._key_names, bad)
        return self._checked(keys, keys.columns, range(len(keys.columns)))

    def keyed(self, decoded: Decoded, keys: pa.Array) -> Decoded:
        """What was decoded with the Kafka keys, one for each good value."""
        join = keyed_events if self.events else keyed_rows
        return replace(decoded, columns=join(decoded.columns, keys, self._key_names))

    @property
    def _key_names(self) -> list[str]:
        return [field.name for field in self._key_columns.fields]

    @cached_property
    def _key_columns(self) -> Schema:
        schema, changes = self.table_schema, self._table.changes or RowChanges(())
        return Schema(*(schema.find_field(field_id) for field_id in changes.key))

    def judge(self, decoded: Decoded) -> Decoded:
        """What was decoded. Events may be bad, or left out; a record without a Kafka key it needs is bad, one that the
        table can't have or tell from others, and where changes are ordered by a column one without a value there.
        """
        judged = self._judged(decoded)
        if not self._checks:
            return judged
        if self.events:
            meant = self.events.meant(judged.columns)
            return self._checked(judged, meant.rows, meant.places.tolist())
        return self._checked(judged, judged.columns, range(len(judged.columns)))

    def _judged(self, decoded: Decoded) -> Decoded:
        if self.events:
            return self.events.judge(decoded)
        changes = self._table.changes
        if self.by_kafka_key:
            decoded = sifted(decoded, keyless({name: decoded.columns.column(name) for name in self._key_names}))
        if changes is None or changes.order is None:
            return decoded
        order = column_of(pa.Table.from_batches([decoded.columns]), changes.order, self.schema)
        lacking = np.flatnonzero(order.is_null().to_numpy()).tolist()
        return sifted(decoded, dict.fromkeys(lacking, f"{changes.order_by}: {NO_ORDER}"))

    @cached_property
    def _checks(self) -> Sequence[RowCheck]:
        return self._table.target.row_checks(self._key_names)

    def _checked(self, decoded: Decoded, rows: pa.RecordBatch, places: Sequence[int]) -> Decoded:
        """Without records that the table can't have; `places` are those of their rows, or of keys of rows."""
        wrong: dict[int, str] = {}
        for check in self._checks:
            if set(check.columns) <= set(rows.schema.names):
                wrong |= check.wrong({name: rows.column(name) for name in check.columns})
        return sifted(decoded, {places[row]: message for row, message in wrong.items()})

    def write_decoded(self, rows: pa.RecordBatch, origin: pa.Array, *, deletes: bool = False) -> None:
        """`origin` is the `_kafka` column of `rows`. `deletes`: they are keys, of rows that go."""
        flags = pa.array(np.full(len(rows), deletes))
        if self.events and not deletes:
            meant = self.events.meant(rows)
            rows, flags, origin = meant.rows, pa.array(meant.deletes), origin.take(pa.array(meant.places))
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if self._has_kafka_column:
            columns[KAFKA_COLUMN] = origin
            self._count_timeless(origin)
        if self.changes and self.changes.soft:
            columns[DELETED_COLUMN] = flags
        batch = pa.RecordBatch.from_pydict(columns)
        if self.changes:
            batch = changes_of(batch, flags, origin, self._spec.topics, self.row_schema)
        self.write(batch)

    def _count_timeless(self, origin: pa.Array) -> None:
        """A record's own time that no reader could show is left out, and counted as a field without a column is."""
        timeless = origin.field("timestamp").null_count
        if timeless and not {ALL, KAFKA_TIME}.intersection(self._table.ignored):
            self.dropped[KAFKA_TIME] += timeless

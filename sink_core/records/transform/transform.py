"""Records through a table's SQL, in DuckDB, batch by batch: what fits becomes rows, what fails is told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import first_line, of_record
from calve.sink_core.config.tables import Transform
from calve.sink_core.errors import ConfigError, ProtocolError, TableUnusable
from calve.sink_core.records.columns.arrow import arrow_schema, missing
from calve.sink_core.records.columns.kafka_column import KAFKA_COLUMN, RAW_KEY, kafka_type
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.decode.bisection import bisect
from calve.sink_core.records.decode.decoded import TRANSFORM, BadValue, Decoded, cut
from calve.sink_core.records.transform.fit import fitted
from calve.sink_core.records.transform.query import ROW, bind, opened, query

_UNFIT = (duckdb.Error, pa.ArrowInvalid, ValueError)
_NO_RECORDS_DOING = (duckdb.BinderException, pa.ArrowTypeError)
"""The table was changed since the SQL was checked."""
_ZONED = "TIME WITH TIME ZONE"

Origins = Callable[[Sequence[int]], pa.Array]
"""Gives the `_kafka` of the records at these places, as `kafka_type`."""


def input_schema(transform: Transform, target: Schema) -> Schema:
    """What is read from the value: the columns named, else those of the table, of which none need be there."""
    if transform.columns:
        return schema_of(transform.columns)
    return Schema(*(field.model_copy(update={"required": False}) for field in target.fields))


class Transforming:
    """The SQL of one table, whose columns without `_kafka` are `target` and whose records have keys of type `key`.

    Raises ConfigError for SQL that can't be used: that is no SQL, that doesn't fit the columns, or that gives others
    than the table's.
    """

    def __init__(self, transform: Transform, target: Schema, *, table: str, key: pa.DataType = RAW_KEY) -> None:
        self._table, self._schema, self._kafka = table, arrow_schema(target), kafka_type(key)
        self._connection = opened()
        self._query = query(self._connection, transform.select, transform.where, table=table)
        self._needs_kafka = transform.may_name(KAFKA_COLUMN)
        read = input_schema(transform, target)
        if twins := _twins(read.as_struct()):
            raise ConfigError(
                f"{table}: transform: SQL can't tell {' from '.join(twins)}, which differ in case only",
                hint="name the one that is to be read, and no other like it, under transform.columns",
                code=Code.UNUSABLE_SQL,
            )
        self._check(arrow_schema(read))

    def apply(self, decoded: Decoded, origins: Origins) -> Decoded:
        """Rows in place of what was decoded. A record neither among `good` nor `bad` was left out by `where`."""
        places = list(range(len(decoded.columns))) if decoded.good is None else decoded.good
        record = pa.Table.from_batches([decoded.columns])
        if self._needs_kafka:
            record = record.append_column(KAFKA_COLUMN, origins(places))
        rows, kept, failed = self._rows(record)
        bad = [BadValue(places[at], TRANSFORM, cut(of_record(error))) for at, error in failed.items()]
        in_order = sorted([*decoded.bad, *bad], key=lambda verdict: verdict.index)
        return replace(decoded, columns=rows, good=[places[at] for at in kept], bad=tuple(in_order))

    def _check(self, columns: pa.Schema) -> None:
        record = columns.append(pa.field(KAFKA_COLUMN, self._kafka)).empty_table()
        self._register(record)
        bind(self._connection, self._query, table=self._table)
        try:
            fitted(self._connection.sql(self._query).to_arrow_table(), self._schema)
        except pa.ArrowTypeError as error:
            raise ConfigError(
                f"{self._table}: transform: {error}", hint="correct transform.select", code=Code.UNUSABLE_SQL
            ) from None
        relation = self._connection.sql(self._query)
        given = relation.columns
        for name, kind in zip(given, map(str, relation.types), strict=True):
            if _ZONED in kind:
                raise ConfigError(
                    f"{self._table}: transform: {name} is {kind}, and no column has a time's zone",
                    hint="cast it to TIME in transform.select",
                    code=Code.UNUSABLE_SQL,
                )
        lacking = [field.name for field in self._schema if not field.nullable and field.name not in given[1:]]
        if lacking:
            raise ConfigError(
                f"{self._table}: transform: the table requires {lacking[0]}, which select doesn't give",
                hint="add it to transform.select",
                code=Code.UNUSABLE_SQL,
            )

    def _rows(self, record: pa.Table) -> tuple[pa.RecordBatch, list[int], dict[int, Exception]]:
        """Rows, the numbers of the records that they are, and by number why others fail."""
        made, failed = bisect(len(record), lambda part: self._attempt(record.slice(part[0], len(part))), _UNFIT)
        kept = [part[at] for part, (_, numbers) in made for at in numbers]
        pieces = [rows for _, (rows, _) in made]
        return pieces[0] if len(pieces) == 1 else pa.concat_batches([self._nothing(), *pieces]), kept, failed

    def _attempt(self, record: pa.Table) -> tuple[pa.RecordBatch, list[int]]:
        try:
            return self._run(record)
        except _NO_RECORDS_DOING as error:
            raise TableUnusable(
                f"{self._table}: transform: {first_line(error)}",
                hint="correct transform.select, or the table; then run again",
                code=Code.UNUSABLE_SQL,
            ) from None

    def _run(self, record: pa.Table) -> tuple[pa.RecordBatch, list[int]]:
        self._register(record)
        found = self._connection.sql(self._query).to_arrow_table()
        numbers = found.column(0).to_numpy()
        if (np.diff(numbers) <= 0).any():
            raise ProtocolError(
                f"{self._table}: transform gave rows {numbers[:20]}, each record must give one",
                hint="use expressions of the record's own columns under transform.select",
                code=Code.TRANSFORM_ROWS,
            )
        rows = fitted(found, self._schema)
        for column, field in zip(rows.columns, self._schema, strict=True):
            if lacking := missing(column, field):
                raise pa.ArrowInvalid(f"{lacking}: required, and null")
        return rows, numbers.tolist()

    def _register(self, record: pa.Table) -> None:
        self._connection.register("record", record.append_column(ROW, pa.array(np.arange(len(record)))))

    def _nothing(self) -> pa.RecordBatch:
        arrays = [pa.array([], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)


def _twins(kind: IcebergType, path: str = "") -> list[str]:
    """Two dotted names of one struct that are one in SQL; none if there are no such."""
    if isinstance(kind, StructType):
        names = dict[str, str]()
        for field in kind.fields:
            name = f"{path}{field.name}"
            if (other := names.setdefault(field.name.casefold(), name)) != name:
                return [other, name]
            if found := _twins(field.field_type, f"{name}."):
                return found
    if isinstance(kind, ListType):
        return _twins(kind.element_type, f"{path}element.")
    return _twins(kind.value_type, f"{path}value.") if isinstance(kind, MapType) else []

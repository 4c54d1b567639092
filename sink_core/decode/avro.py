"""Avro records, decoded to Arrow columns typed by an Iceberg schema; `avro_types` says what fits which column.

Many records are read at once where that can be (`avro_at_once`). Else what becomes of a record doesn't depend on its
neighbours either: fastavro reads each on its own, and where columns can't be made of many records at once they are
halved, in the end to single ones, whose verdict decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from pyiceberg.schema import Schema

from sink_core.decode.avro_at_once import reader
from sink_core.decode.avro_schema import WriterSchema, shown
from sink_core.decode.avro_types import Carriers
from sink_core.decode.convert import Converter, from_typed
from sink_core.decode.decoded import DECODE, FIT, BadValue, Decoded, cut, in_order
from sink_core.decode.framing import Framing
from sink_core.tables.arrow import file_schema

# fastavro quotes what it reads from, by its place in memory.
_READER = re.compile(r" from <_io\.BytesIO.*>")
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError)


@dataclass(slots=True)
class OneSchema:
    """Plain Avro: every value is written with the same schema, and is nothing but the data."""

    schema: WriterSchema
    header_bytes: int = 0

    def writer_of(self, value: bytes) -> WriterSchema:  # noqa: ARG002 - whatever the value is
        return self.schema


@dataclass(slots=True)
class _Group:
    """Records of one schema, with their places among the values."""

    schema: WriterSchema
    places: list[int] = field(default_factory=list[int])
    records: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class AvroDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`)."""

    def __init__(self, schema: Schema, framing: Framing[WriterSchema]) -> None:
        self._framing = framing
        self._typed = file_schema(schema)
        self._converter = Converter(schema, from_typed)
        self._plans: dict[int, _Plan] = {}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        if (decoded := self._at_once(values)) is not None:
            return decoded
        bad: dict[int, BadValue] = {}
        pieces = [([], self._converter.convert(_nothing(self._typed))[0])]
        for group in self._read(values, bad):
            plan = self._plan(group.schema)
            for places, carried in plan.carry(group, bad):
                columns, misfits = self._converter.convert(carried)
                bad |= {places[row]: BadValue(places[row], FIT, cut(text)) for row, text in misfits.items()}
                pieces.append(([place for place in places if place not in bad] if misfits else places, columns))
        good, columns = pieces[1] if len(pieces) == 2 else in_order(pieces)
        return Decoded(columns, good if bad else None, tuple(bad[place] for place in sorted(bad)))

    def _at_once(self, values: Sequence[bytes]) -> Decoded | None:
        """All values read together, or None if they are to be looked at one by one."""
        header_bytes = self._framing.header_bytes
        if len({value[:header_bytes] for value in values}) != 1:
            return None
        try:
            schema = self._framing.writer_of(values[0])
        except ValueError:
            return None
        read = self._plan(schema).at_once
        carried = read(values, header_bytes) if read else None
        if carried is None:
            return None
        columns, misfits = self._converter.convert(carried)
        bad = tuple(BadValue(place, FIT, cut(misfits[place])) for place in sorted(misfits))
        return Decoded(columns, [i for i in range(len(values)) if i not in misfits] if bad else None, bad)

    def _read(self, values: Sequence[bytes], bad: dict[int, BadValue]) -> list[_Group]:
        groups: dict[int, _Group] = {}
        writer_of, header_bytes = self._framing.writer_of, self._framing.header_bytes
        for place, value in enumerate(values):
            try:
                schema = writer_of(value)
                record = _record(value, header_bytes, schema)
            except ValueError as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
                continue
            group = groups.get(id(schema)) or groups.setdefault(id(schema), _Group(schema))
            group.places.append(place)
            group.records.append(record)
        return list(groups.values())

    def _plan(self, schema: WriterSchema) -> _Plan:
        found = self._plans.get(id(schema))
        # The plan holds the schema, so that no other one gets its id.
        return found or self._plans.setdefault(id(schema), _Plan(schema, self._typed))


class _Plan:
    """How records of one writer schema become columns of the table."""

    def __init__(self, schema: WriterSchema, typed: pa.Schema) -> None:
        self._schema, carriers = schema, Carriers(schema)
        self._record = schema.record
        self._type = carriers.struct(self._record["fields"] if self._record else [], typed)
        self._misfits = carriers.misfits
        self.at_once = reader(schema, self._type)

    def carry(self, group: _Group, bad: dict[int, BadValue]) -> list[tuple[list[int], pa.RecordBatch]]:
        """The group's records as batches of the carriers' types with their places; what doesn't fit goes to `bad`."""
        if self._record is None:
            message = f"{self._schema.name} is {shown(self._schema.resolved(self._schema.root))}, not a record"
            bad |= {place: BadValue(place, FIT, cut(message)) for place in group.places}
            return []
        pieces: list[tuple[list[int], pa.RecordBatch]] = []
        spans = [(0, len(group.records))]
        while spans:
            start, end = spans.pop()
            try:
                carried = pa.array(group.records[start:end], self._type)
            except _UNFIT as error:
                middle = (start + end) // 2
                if end - start == 1:
                    text = self._misfit(group.records[start], error)
                    bad[group.places[start]] = BadValue(group.places[start], FIT, cut(text))
                else:
                    spans += [(start, middle), (middle, end)]
                continue
            pieces.append((group.places[start:end], pa.RecordBatch.from_struct_array(carried)))
        return pieces

    def _misfit(self, record: dict[str, Any], error: Exception) -> str:
        """What is wrong with a record that can't be carried, the field named."""
        for column in self._type:
            try:
                pa.array([record.get(column.name)], column.type)
            except _UNFIT as own:
                known = [m for m in self._misfits if m.startswith((f"{column.name}:", f"{column.name}."))]
                return "; ".join(known) or f"{column.name}: {own}"
        return str(error)


def _record(value: bytes, header_bytes: int, schema: WriterSchema) -> dict[str, Any]:
    """The record in a value. Raises ValueError if it isn't all of the value."""
    data = BytesIO(value)
    data.seek(header_bytes)
    try:
        record: Any = schemaless_reader(data, schema.readable, None)
    except Exception as error:  # noqa: BLE001 - whatever fastavro makes of broken bytes, it is about this record alone
        said = _READER.sub("", f"{type(error).__name__}: {error}".rstrip(": "))
        raise ValueError(f"truncated, or not written with {schema.name}: {said}") from None
    if data.tell() != len(value):
        raise ValueError(f"not written with {schema.name}: {len(value) - data.tell()} bytes are left over")
    return record


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0) for _ in schema], names=schema.names)

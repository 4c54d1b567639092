"""Avro records, decoded to Arrow columns typed by an Iceberg schema; `avro_types` says what fits which column.

Many records are read at once where that can be (`avro_at_once`). The others are read by fastavro, each on its own, and
where columns can't be made of many records at once they are halved, in the end to single ones, whose verdict decides:
what becomes of a record doesn't depend on its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fastavro import schemaless_reader
from pyiceberg.schema import Schema

from calve.sink_core import compiled
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.packed import Packed, packed, taken
from calve.sink_core.records.avro.columns import avro_columns
from calve.sink_core.records.avro.schema import WriterSchema, shown
from calve.sink_core.records.avro.strict import check
from calve.sink_core.records.avro.types import Carriers
from calve.sink_core.records.avro.vectorised import reader
from calve.sink_core.records.columns.arrow import file_schema
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.asking import asking_columns
from calve.sink_core.records.decode.bisection import bisect
from calve.sink_core.records.decode.convert import Converter, from_typed
from calve.sink_core.records.decode.decoded import DECODE, FIT, BadValue, Decoded, cut, in_order
from calve.sink_core.records.decode.framing import Framing

if TYPE_CHECKING:
    from calve.sink_core.records.avro.program import Program

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
    """Values of one schema, with their places among all values."""

    schema: WriterSchema
    places: list[int]
    values: Sequence[bytes]


class AvroDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`), `steps`
    says what the table may be given: what the schemas of records ask for, whatever is in these. Without `at_once` each
    record is read on its own, with the same outcome.
    """

    def __init__(
        self,
        schema: Schema,
        framing: Framing[WriterSchema],
        steps: Collection[EvolveStep] = (),
        names: Names = EXACT,
        *,
        at_once: bool = True,
    ) -> None:
        self._framing, self._names, self._at_once = framing, names, at_once
        self._asking = asking_columns(schema, steps, avro_columns, names)
        self._typed = file_schema(schema)
        self._converter = Converter(schema, from_typed)
        self._plans: dict[int, _Plan] = {}

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        return self._asking.told(self._decoded(values))

    def _decoded(self, values: Sequence[bytes]) -> Decoded:
        bad: dict[int, BadValue] = {}
        pieces = [([], self._converter.convert(_nothing(self._typed))[0])]
        for group in self._grouped(values, bad):
            if why := self._asking.take(group.schema, len(group.places)):
                bad |= {place: BadValue(place, FIT, why) for place in group.places}
                continue
            for places, carried in self._carried(group, bad):
                columns, misfits = self._converter.convert(carried)
                bad |= {places[row]: BadValue(places[row], FIT, cut(text)) for row, text in misfits.items()}
                pieces.append(([place for place in places if place not in bad] if misfits else places, columns))
        good, columns = pieces[1] if len(pieces) == 2 else in_order(pieces)
        return Decoded(columns, good if bad else None, tuple(bad[place] for place in sorted(bad)))

    def _grouped(self, values: Sequence[bytes], bad: dict[int, BadValue]) -> list[_Group]:
        """The values by schema; those without one go to `bad`."""
        size = self._framing.header_bytes
        by_header: dict[bytes, list[int]] = {}
        if (same := _prefix(values, size)) is not None:
            by_header[same] = list(range(len(values)))
        else:
            for place, value in enumerate(values):
                by_header.setdefault(value[:size], []).append(place)
        groups: list[_Group] = []
        for header, places in by_header.items():
            try:
                schema = self._framing.writer_of(header)
            except ValueError as error:
                bad |= {place: BadValue(place, DECODE, cut(str(error))) for place in places}
                continue
            groups.append(_Group(schema, places, values if len(places) == len(values) else taken(values, places)))
        return groups

    def _carried(self, group: _Group, bad: dict[int, BadValue]) -> list[tuple[list[int], pa.RecordBatch]]:
        """The group's records as batches of the carriers' types with their places; what is wrong goes to `bad`."""
        plan, size = self._plan(group.schema), self._framing.header_bytes
        read = plan.read(group.values, size) if self._at_once else None
        if read is None:
            return plan.one_by_one(group, size, bad)
        carried, suspects = read
        if not suspects:
            return [(group.places, carried)]
        apart = set(suspects)
        others = [place for i, place in enumerate(group.places) if i not in apart]
        alone = _Group(group.schema, [group.places[i] for i in suspects], taken(group.values, suspects))
        return [(others, carried), *plan.one_by_one(alone, size, bad)]

    def _plan(self, schema: WriterSchema) -> _Plan:
        found = self._plans.get(id(schema))
        if found is None:
            # The plan holds the schema, so that no other one gets its id.
            found = self._plans[id(schema)] = _Plan(schema, self._typed, self._names)
        return found


class _Plan:
    """How records of one writer schema become columns of the table."""

    def __init__(self, schema: WriterSchema, typed: pa.Schema, names: Names) -> None:
        self._schema, carriers = schema, Carriers(schema, names)
        self._record = schema.record
        self._type = carriers.struct(self._record["fields"] if self._record else [], typed)
        self._misfits = carriers.misfits
        self._clash = carriers.clash
        self._at_once = None if self._clash else reader(schema, self._type)
        self._program: Program | None = None
        self._is_programmed, self._seen = False, 0

    def read(self, values: Sequence[bytes], header_bytes: int) -> tuple[pa.RecordBatch, list[int]] | None:
        """As `vectorised.Reader`; None as well if the schema is for none."""
        if self._at_once is None:
            return None
        self._seen += len(values)
        if not self._is_programmed and compiled.usable(compiled.AVRO, self._seen):
            from calve.sink_core.records.avro.program import program

            self._program, self._is_programmed = program(self._schema, self._type), True
        if self._program is not None:
            return self._program.read(packed(values), header_bytes)
        return self._at_once(values, header_bytes)

    def one_by_one(
        self, group: _Group, header_bytes: int, bad: dict[int, BadValue]
    ) -> list[tuple[list[int], pa.RecordBatch]]:
        """The group's records as batches of the carriers' types with their places; what is wrong goes to `bad`."""
        places, records = list[int](), list[dict[str, Any]]()
        for place, value in zip(group.places, group.values, strict=True):
            try:
                records.append(_record(value, header_bytes, self._schema))
                places.append(place)
            except ValueError as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
        if self._record is None:
            message = f"{self._schema.name} is {shown(self._schema.resolved(self._schema.root))}, not a record"
            bad |= {place: BadValue(place, FIT, cut(message)) for place in places}
            return []
        if self._clash:
            bad |= {place: BadValue(place, FIT, cut(self._clash)) for place in places}
            return []
        return self._carry(places, records, bad)

    def _carry(
        self, places: list[int], records: list[dict[str, Any]], bad: dict[int, BadValue]
    ) -> list[tuple[list[int], pa.RecordBatch]]:
        made, unfit = bisect(len(records), lambda part: pa.array(records[part[0] : part[-1] + 1], self._type), _UNFIT)
        for i, error in unfit.items():
            bad[places[i]] = BadValue(places[i], FIT, cut(self._misfit(records[i], error)))
        return [(places[part[0] : part[-1] + 1], pa.RecordBatch.from_struct_array(carried)) for part, carried in made]

    def _misfit(self, record: dict[str, Any], error: Exception) -> str:
        """What is wrong with a record that can't be carried, the field named."""
        for column in self._type:
            try:
                pa.array([record.get(column.name)], column.type)
            except _UNFIT as own:
                known = [m for m in self._misfits if m.startswith((f"{column.name}:", f"{column.name}."))]
                return "; ".join(known) or f"{column.name}: {own}"
        return str(error)


def _prefix(values: Sequence[bytes], size: int) -> bytes | None:
    """What all values begin with, if it is the same."""
    if isinstance(values, Packed):
        return values.prefix(size)
    found = {value[:size] for value in values}
    return found.pop() if len(found) == 1 else None


def _record(value: bytes, header_bytes: int, schema: WriterSchema) -> dict[str, Any]:
    """The record in a value. Raises ValueError if it isn't all of the value."""
    data = BytesIO(value)
    data.seek(header_bytes)
    try:
        check(value, header_bytes, schema)
        record: Any = schemaless_reader(data, schema.readable, None)
    except Exception as error:  # noqa: BLE001 - whatever fastavro makes of broken bytes, it is about this record alone
        said = _READER.sub("", f"{type(error).__name__}: {error}".rstrip(": "))
        raise ValueError(f"truncated, or not written with {schema.name}: {said}") from None
    if data.tell() != len(value):
        raise ValueError(f"not written with {schema.name}: {len(value) - data.tell()} bytes are left over")
    return record


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0) for _ in schema], names=schema.names)

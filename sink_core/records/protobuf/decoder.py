"""Protobuf messages, decoded to Arrow columns typed by an Iceberg schema; `protobuf_types` says what fits which column.

Many messages are read at once by a kernel where that can be (`protobuf_layout`). Of the others each value is parsed on
its own; then each field of all messages becomes a column at once. Where that fails the messages are halved, in the end
to single ones, whose verdict decides.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyiceberg.schema import Schema

from calve.sink_core import compiled
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.packed import packed
from calve.sink_core.records.columns.arrow import file_schema
from calve.sink_core.records.columns.names import EXACT, Names
from calve.sink_core.records.decode.asking import asking_columns
from calve.sink_core.records.decode.bisection import bisect
from calve.sink_core.records.decode.convert import Converter, from_typed
from calve.sink_core.records.decode.decoded import DECODE, FIT, BadValue, Decoded, cut, in_order
from calve.sink_core.records.protobuf.columns import protobuf_columns
from calve.sink_core.records.protobuf.schema import Messages, MessageSchema
from calve.sink_core.records.protobuf.types import Foreign, Make, Unfit, of_message

if TYPE_CHECKING:
    from calve.sink_core.records.protobuf.table import Table

Carried = tuple[list[int], pa.RecordBatch]
"""Messages as columns on their way to the table's, and their places among the values."""


@dataclass(slots=True)
class _Group:
    """Messages of one schema, with their places among the values; `carried` are those that the kernel has read."""

    schema: MessageSchema
    carried: list[Carried] = field(default_factory=list[Carried])
    places: list[int] = field(default_factory=list[int])
    messages: list[Any] = field(default_factory=list[Any])

    @property
    def number(self) -> int:
        return len(self.places) + sum(len(places) for places, _ in self.carried)

    @property
    def first(self) -> int:
        """The first place."""
        return min(places[0] for places in (self.places, *(places for places, _ in self.carried)) if places)


class ProtobufDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`), `steps`
    says what the table may be given: what the messages' own schemas ask for.
    """

    def __init__(
        self, schema: Schema, messages: Messages, steps: Collection[EvolveStep] = (), names: Names = EXACT
    ) -> None:
        self._messages, self._names = messages, names
        self._asking = asking_columns(schema, steps, protobuf_columns, names)
        self._typed = file_schema(schema)
        self._converter = Converter(schema, from_typed)
        self._makers: dict[int, tuple[MessageSchema, Make]] = {}
        self._tables: dict[int, tuple[MessageSchema, Table | None]] = {}
        self._seen = 0

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        bad: dict[int, BadValue] = {}
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0) for _ in self._typed], names=self._typed.names)
        pieces = [([], self._converter.convert(nothing)[0])]
        for group in self._groups(values, bad):
            if why := self._asking.take(group.schema, group.number):
                at = [*group.places, *(place for places, _ in group.carried for place in places)]
                bad |= {place: BadValue(place, FIT, why) for place in at}
                continue
            for places, carried in self._carried(group, bad):
                columns, misfits = self._converter.convert(carried)
                bad |= {places[row]: BadValue(places[row], FIT, cut(text)) for row, text in misfits.items()}
                pieces.append(([place for place in places if place not in bad] if misfits else places, columns))
        good, columns = pieces[1] if len(pieces) == 2 else in_order(pieces)
        decoded = Decoded(columns, good if bad else None, tuple(bad[place] for place in sorted(bad)))
        return self._asking.told(decoded)

    def _groups(self, values: Sequence[bytes], bad: dict[int, BadValue]) -> list[_Group]:
        """The messages by schema, in the order in which these come; values that are none go to `bad`."""
        groups: dict[int, _Group] = {}
        self._seen += len(values)
        at_once = len(values) and compiled.usable(compiled.PROTOBUF, self._seen)
        self._parse(values, self._read(values, groups) if at_once else range(len(values)), groups, bad)
        return sorted(groups.values(), key=lambda group: group.first)

    def _read(self, values: Sequence[bytes], groups: dict[int, _Group]) -> list[int]:
        """Has the kernel read what it is for; the places of the other values, in order."""
        together = packed(values)
        found, left = self._messages.sorted_out(together)
        for schema, at, places in found:
            if (table := self._table(schema)) is None:
                left.append(places)
                continue
            carried, suspect = table.read(together if len(places) == len(together) else together.at(places), at)
            left.append(places[suspect])
            if len(carried):
                group = groups.setdefault(id(schema), _Group(schema))
                group.carried.append((places[~suspect].tolist(), carried))
        return np.sort(np.concatenate(left)).tolist() if left else []

    def _parse(
        self, values: Sequence[bytes], places: Sequence[int], groups: dict[int, _Group], bad: dict[int, BadValue]
    ) -> None:
        """Parse the values at `places`, each on its own."""
        opened = self._messages.opened
        for place in places:
            value = values[place]
            try:
                schema, at = opened(value)
                message = schema.parse(value[at:])
            except ValueError as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
                continue
            except DecodeError as error:
                schema = self._messages.writer_of(value)
                text = f"truncated, or not written with {schema.name}: {error}"
                bad[place] = BadValue(place, DECODE, cut(text))
                continue
            group = groups.get(id(schema)) or groups.setdefault(id(schema), _Group(schema))
            group.places.append(place)
            group.messages.append(message)

    def _carried(self, group: _Group, bad: dict[int, BadValue]) -> list[Carried]:
        """The group's messages; what doesn't fit goes to `bad`."""
        make = self._maker(group.schema)
        places, messages = group.places, group.messages
        made, failed = bisect(len(messages), lambda part: make(messages[part[0] : part[-1] + 1]), (Unfit, Foreign))
        for i, error in failed.items():
            foreign = isinstance(error, Foreign)
            text = f"not written with {group.schema.name}: {error}" if foreign else str(error)
            bad[places[i]] = BadValue(places[i], DECODE if foreign else FIT, cut(text))
        parts = [(places[part[0] : part[-1] + 1], pa.RecordBatch.from_struct_array(carried)) for part, carried in made]
        return [*group.carried, *parts]

    def _maker(self, schema: MessageSchema) -> Make:
        # The schema is kept, so that no other one gets its id.
        found = self._makers.get(id(schema))
        if found is None:
            found = self._makers[id(schema)] = (schema, of_message(schema.descriptor, self._typed, self._names))
        return found[1]

    def _table(self, schema: MessageSchema) -> Table | None:
        """What the kernel reads messages of `schema` by; None if it is not for them."""
        found = self._tables.get(id(schema))
        if found is None:
            from calve.sink_core.records.protobuf.layout import layout

            table = layout(schema.descriptor, self._typed, self._names)
            found = self._tables[id(schema)] = (schema, table)
        return found[1]

"""A message's schema as the table that the kernel goes by, and the columns that its rows become.

These are what `types` makes of the messages themselves. A field that has no entry in the table makes its record a
suspect, which `types` is asked about: unknown ones, groups, those that don't fit their column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from calve.sink_core.records.columns.names import Names, TwoOfOne
from calve.sink_core.records.protobuf import kernel
from calve.sink_core.records.protobuf.known import DECIMAL
from calve.sink_core.records.protobuf.table import Lacks, Make, Table, Words, chosen, leaf
from calve.sink_core.records.protobuf.types import DURATION, TIMESTAMP, WRAPPERS, carrier_of, entry_of

_F = FieldDescriptor
_LEAST, _MOST = -(2**63), 2**63 - 1
_INT32, _UINT32, _ANY = (-(2**31), 2**31 - 1), (0, 2**32 - 1), (_LEAST, _MOST)
_PLAIN: dict[int, tuple[int, tuple[int, int]]] = {
    _F.TYPE_BOOL: (kernel.VARINT, (0, 1)),
    _F.TYPE_INT32: (kernel.VARINT, _INT32),
    _F.TYPE_UINT32: (kernel.VARINT, _UINT32),
    _F.TYPE_SINT32: (kernel.ZIGZAG, _INT32),
    _F.TYPE_INT64: (kernel.VARINT, _ANY),
    _F.TYPE_UINT64: (kernel.VARINT, _ANY),
    _F.TYPE_SINT64: (kernel.ZIGZAG, _ANY),
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32, _F.TYPE_FLOAT), (kernel.WORD32, _ANY)),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64, _F.TYPE_DOUBLE), (kernel.WORD64, _ANY)),
    _F.TYPE_STRING: (kernel.TEXT, _ANY),
    _F.TYPE_BYTES: (kernel.BYTES, _ANY),
}
"""What fields are to the kernel, and the least and the greatest value they may have."""
_WIRE = {kernel.WORD64: 1, kernel.WORD32: 5, kernel.BYTES: 2, kernel.TEXT: 2, kernel.MESSAGE: 2}
_PACKED_WIRE = 2
_LOW_HALF = 0xFFFFFFFF
_UNSIGNED = (_F.TYPE_UINT64, _F.TYPE_FIXED64)

Entry = list[int]
Found = tuple[Entry, Make]
"""The entry of a field, and what makes its column."""


def layout(message: Descriptor, wanted: pa.Schema, names: Names) -> Table | None:
    """The table for messages on their way to the fields of a file's schema, found under `names`; None if the kernel is
    not for them.
    """
    builder = _Builder(names)
    try:
        _, make = builder.struct(message, wanted, 0, -1)
    except (Lacks, RecursionError):  # messages within each other may be as many as one likes
        return None
    return Table(
        fields=_words(builder.fields, kernel.FIELD_WORDS),
        nodes=_words(builder.nodes, kernel.NODE_WORDS),
        enums=np.array(builder.enums, np.int64),
        level_of=np.array([level for level, _ in builder.rows], np.int64),
        defaults=np.array([default for _, default in builder.rows], np.int64),
        room=np.zeros(builder.levels, np.int64),
        make=make,
    )


@dataclass(slots=True)
class _Builder:
    """`fields`, `nodes` and `enums` as the kernel has them; of each of `rows` the level and the default."""

    names: Names
    fields: list[Entry] = field(default_factory=list[Entry])
    nodes: list[list[int]] = field(default_factory=list[list[int]])
    enums: list[int] = field(default_factory=list[int])
    rows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    levels: int = 1
    _skipped: dict[str, int] = field(default_factory=dict[str, int])

    def struct(self, message: Descriptor, wanted: pa.DataType | pa.Schema, level: int, valid: int) -> tuple[int, Make]:
        """The node of a message at its place, and what makes structs of it. Raises Lacks."""
        try:
            called = self.names.called(wanted, list(message.fields_by_name))
        except TwoOfOne:
            raise Lacks from None
        given = {str(to.name): called.get(to.name, str(to.name)) for to in wanted}
        if not given or len(set(given.values())) < len(given):
            raise Lacks
        node, makers = self._node(message, {given[to.name]: to.type for to in wanted}, level)

        def make(words: Words) -> pa.Array:
            number = int(words.counts[level])
            columns = {name: makers[of](words) if of in makers else pa.nulls(number) for name, of in given.items()}
            return words.struct(columns, number, valid)

        return node, make

    def _node(
        self, message: Descriptor, wanted: Mapping[str, pa.DataType], level: int, valid: int = -1
    ) -> tuple[int, dict[str, Make]]:
        """A new node, and what makes the columns of its fields, null as `valid` says if they have no presence."""
        node, entries, makers = self._new_node(), list[Entry](), dict[str, Make]()
        once = dict[str, int]()
        for choice in message.oneofs:
            # One that proto3 makes of an optional field has no others.
            if len(choice.fields) > 1 and any(of.name in wanted for of in choice.fields):
                once |= dict.fromkeys((of.name for of in choice.fields), self._row(level))
        for of in sorted(message.fields, key=lambda of: of.number):
            if of.name not in wanted:
                entries += self._passed(of, once.get(of.name, -1))
            elif (found := self._column(of, wanted[of.name], level, once.get(of.name, -1), valid)) is not None:
                entries += _tagged(of, found[0])
                makers[of.name] = found[1]
        self._fill(node, entries)
        return node, makers

    def _column(self, of: FieldDescriptor, wanted: pa.DataType, level: int, once: int, valid: int) -> Found | None:
        """None if the field doesn't fit its column."""
        if entry_of(of) and pa.types.is_map(wanted):
            raise Lacks
        if of.is_repeated:
            if entry_of(of) or not pa.types.is_large_list(wanted):
                return None
            self.levels += 1
            inner, many = self.levels - 1, self._row(level)
            found = self._value(of, wanted.value_type, inner, -1)
            if found is None:
                return None
            entry, make = found
            entry[kernel.MANY], entry[kernel.LEVEL] = many, inner
            return entry, lambda words: words.lists(many, make(words))
        has = self._row(level) if of.has_presence else -1
        found = self._value(of, wanted, level, (-1 if of.has_default_value else has) if of.has_presence else valid)
        if found is None:
            return None
        entry, make = found
        entry[kernel.HAS] = has
        # Another message of the field would be merged into the first one.
        entry[kernel.ONCE] = has if once < 0 and of.message_type is not None else once
        return entry, make

    def _value(self, of: FieldDescriptor, wanted: pa.DataType, level: int, valid: int) -> Found | None:
        """Of single values of a field; None if they don't fit."""
        if of.message_type is not None:
            found = self._of_message_type(of.message_type, wanted, level, valid)
            return found and (_entry(kernel.MESSAGE, low=found[0]), found[1])
        by_name = of.enum_type is not None and pa.types.is_large_string(wanted)
        carrier = wanted if by_name else carrier_of(of, wanted)
        if carrier is None:
            return None
        entry = self._plain(of)
        if of.enum_type is not None:
            numbers = _numbers(of.enum_type)
            make_leaf = chosen(pa.array(list(numbers.values()) if by_name else list(numbers), carrier))
            default = 0 if of.is_repeated else list(numbers).index(of.default_value)
        else:
            make_leaf, default = leaf(of.type, carrier), _default(of)
            if of.type in _UNSIGNED and not pa.types.is_decimal(carrier):
                entry[kernel.LOW] = 0
        if pa.types.is_fixed_size_binary(carrier):
            if not of.is_repeated and (not of.has_presence or of.has_default_value):
                # What is not there has no bytes, and these don't fit.
                raise Lacks
            entry[kernel.LOW] = entry[kernel.HIGH] = carrier.byte_width
        row = entry[kernel.ROW] = self._row(level, default)
        if entry[kernel.KIND] in (kernel.BYTES, kernel.TEXT):
            self._row(level)
        return entry, lambda words: make_leaf(words, row, valid)

    def _of_message_type(
        self, kind: Descriptor, wanted: pa.DataType, level: int, valid: int
    ) -> tuple[int, Make] | None:
        if kind.full_name in WRAPPERS:
            node, makers = self._node(kind, {"value": wanted}, level, valid)
            return (node, makers["value"]) if makers else None
        if kind.full_name == TIMESTAMP and pa.types.is_timestamp(wanted) and wanted.tz:
            return self._timestamp(kind, pa.timestamp("us", wanted.tz), level, valid)
        if kind.full_name in (DURATION, DECIMAL) and pa.types.is_decimal(wanted):
            raise Lacks
        return self.struct(kind, wanted, level, valid) if pa.types.is_struct(wanted) else None

    def _timestamp(self, kind: Descriptor, wanted: pa.DataType, level: int, valid: int) -> tuple[int, Make]:
        node, row = self._new_node(), self._row(level)
        entries = [self._plain(kind.fields_by_name[name]) for name in ("seconds", "nanos")]
        entries[0][kernel.ROW], entries[1][kernel.ROW] = row, self._row(level)
        self._fill(node, [each for of, entry in zip(kind.fields, entries, strict=True) for each in _tagged(of, entry)])
        self.nodes[node][kernel.STAMP] = row
        return node, lambda words: words.array(wanted, words.row(row), valid)

    def _passed(self, of: FieldDescriptor, once: int) -> list[Entry]:
        """Of a field that is read past. What is wrong with it is wrong with the record."""
        if of.message_type is None:
            entry = self._plain(of)
        else:
            name = of.message_type.full_name
            node = self._skipped.get(name)
            if node is None:
                # Known by then to messages within it.
                node = self._skipped[name] = self._new_node()
                self._fill(node, [entry for each in of.message_type.fields for entry in self._passed(each, -1)])
            entry = _entry(kernel.MESSAGE, low=node)
        entry[kernel.ONCE] = once
        return _tagged(of, entry)

    def _plain(self, of: FieldDescriptor) -> Entry:
        if of.enum_type is None:
            kind, (low, high) = _PLAIN[of.type]
            return _entry(kind, low, high)
        numbers, low = list(_numbers(of.enum_type)), len(self.enums)
        self.enums += numbers
        return _entry(kernel.ENUM, low, len(numbers))

    def _row(self, level: int, default: int = 0) -> int:
        self.rows.append((level, default))
        return len(self.rows) - 1

    def _new_node(self) -> int:
        self.nodes.append([0, 0, -1])
        return len(self.nodes) - 1

    def _fill(self, node: int, entries: list[Entry]) -> None:
        self.nodes[node][:2] = len(self.fields), len(self.fields) + len(entries)
        self.fields += entries


def _words(rows: list[list[int]], size: int) -> npt.NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, size)


def _entry(kind: int, low: int = _LEAST, high: int = _MOST) -> Entry:
    """Without a tag, and read past."""
    entry = [-1] * kernel.FIELD_WORDS
    entry[kernel.KIND], entry[kernel.PACKED], entry[kernel.LOW], entry[kernel.HIGH] = kind, 0, low, high
    return entry


def _tagged(of: FieldDescriptor, entry: Entry) -> list[Entry]:
    """The entry for each way in which the field may be written; groups are not read."""
    if of.type == _F.TYPE_GROUP:
        return []
    wire, found = _WIRE.get(entry[kernel.KIND], 0), list[Entry]()
    for written in (wire, _PACKED_WIRE) if of.is_repeated and wire != _PACKED_WIRE else (wire,):
        found.append(entry.copy())
        found[-1][kernel.TAG] = of.number << 3 | written
        found[-1][kernel.PACKED] = written != wire
    return found


def _numbers(kind: EnumDescriptor) -> dict[int, str]:
    return {number: value.name for number, value in kind.values_by_number.items()}


def _default(of: FieldDescriptor) -> int:
    """The word of a field that isn't there. Raises Lacks."""
    value = of.default_value if of.has_presence and of.has_default_value else 0
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32) if of.type == _F.TYPE_FLOAT else np.float64(value).view(np.int64))
    if isinstance(value, str | bytes) or not _LEAST <= value <= _MOST:
        raise Lacks
    return int(value) & _LOW_HALF if of.type == _F.TYPE_SFIXED32 else int(value)

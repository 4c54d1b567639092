"""The fields that are wanted of JSON objects as a table for the kernel, and the columns that it makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calve.sink_core.packed import Packed
from calve.sink_core.records.json import kernel
from calve.sink_core.records.json.numbers import powers_of_five

Bools = npt.NDArray[np.bool_]

_MOST_OTHERS = 32
"""Fields that nobody asked for, of which the kernel counts the values; a record with one more is a suspect."""

_BLANK = ord(" ")

_KINDS: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
    (pa.types.is_boolean, kernel.BOOLEAN),
    (pa.types.is_int32, kernel.INT),
    (pa.types.is_int64, kernel.LONG),
    (pa.types.is_float64, kernel.DOUBLE),
    (pa.types.is_string, kernel.TEXT),
    (pa.types.is_large_string, kernel.TEXT),
)


class _NotForThis(Exception):
    """The schema has what the kernel does not read."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of the records that are none of the `suspect` ones; `others` counts values of fields that are no column."""

    rows: pa.RecordBatch
    suspect: Bools
    others: Counter[str]


def table(schema: pa.Schema) -> Table | None:
    """The table for records of `schema`, one of `block.parsed_schema`; None if the kernel is not for them."""
    made = Table(schema)
    try:
        made.add("", list(schema))
    except _NotForThis:
        return None
    return made


@dataclass(slots=True)
class Table:
    """Fields and nodes as the kernel takes them."""

    schema: pa.Schema
    paths: list[str] = field(default_factory=list[str])
    nodes: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    fields: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    names: bytearray = field(default_factory=bytearray)
    rows: int = 0

    def add(self, path: str, of: list[pa.Field]) -> int:
        """The number of the node with these fields, which is added."""
        node, first = len(self.nodes), len(self.fields)
        self.paths.append(path)
        self.nodes.append((first, first + len(of)))
        self.fields += [()] * len(of)
        for number, each in enumerate(of, first):
            kind, name = _kind(each.type), str(each.name).encode()
            if b'"' in name or b"\\" in name or any(byte < _BLANK for byte in name):
                # Not written as it is, and the kernel compares what is written.
                raise _NotForThis
            row, inner = -1, -1
            if kind == kernel.STRUCT:
                inner = self.add(f"{path}{each.name}.", list(each.type))
            else:
                row, self.rows = self.rows, self.rows + 1 + (kind == kernel.TEXT)
            self.fields[number] = (len(self.names), len(name), kind, row, number, inner)
            self.names += name
        return node

    def read(self, values: Packed) -> Found:
        """What the kernel reads of the values, none of which is None."""
        n, data = len(values), values.data
        words, valid = np.zeros((self.rows, n), np.int64), np.zeros((len(self.fields), n), np.uint8)
        suspect, others = np.zeros(n, np.uint8), np.zeros((_MOST_OTHERS, kernel.OTHER_WORDS), np.int64)
        unescaped = np.empty(len(data), np.uint8)
        suspects = kernel.read(
            data,
            np.ascontiguousarray(values.starts),
            np.ascontiguousarray(values.ends),
            np.frombuffer(self.names or bytearray(1), np.uint8),
            np.array(self.fields, np.int64).reshape(-1, kernel.FIELD_WORDS),
            np.array(self.nodes, np.int64),
            _POWERS,
            words,
            valid,
            unescaped,
            np.zeros(len(self.fields), np.int64),
            others,
            suspect,
        )
        bad = suspect.astype(np.bool_)
        if suspects:
            words, valid = words[:, ~bad], valid[:, ~bad]
        columns = _Columns(self, data, unescaped, words, valid)
        made = pa.RecordBatch.from_arrays(columns.of_node(0, list(self.schema)), schema=self.schema)
        return Found(made, bad, self._counted(data, others))

    def _counted(self, data: npt.NDArray[np.uint8], others: npt.NDArray[np.int64]) -> Counter[str]:
        found = Counter[str]()
        for node, name, size, count, _ in others.tolist():
            if count:
                found[self.paths[node] + data[name : name + size].tobytes().decode()] += count
        return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of what the kernel filled."""

    table: Table
    data: npt.NDArray[np.uint8]
    unescaped: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    valid: npt.NDArray[np.uint8]

    def of_node(self, node: int, of: list[pa.Field]) -> list[pa.Array]:
        """The columns of a node."""
        first, last = self.table.nodes[node]
        return [self._column(self.table.fields[k], each.type) for k, each in zip(range(first, last), of, strict=True)]

    def _column(self, of: tuple[int, ...], wanted: pa.DataType) -> pa.Array:
        kind, row = of[kernel.KIND], of[kernel.ROW]
        there = self.valid[of[kernel.VALID]]
        nulls = len(there) - int(np.count_nonzero(there))
        bitmap = pa.py_buffer(np.packbits(there, bitorder="little")) if nulls else None
        if kind == kernel.STRUCT:
            children = self.of_node(of[kernel.NODE], list(wanted))
            if not children:
                return pa.Array.from_buffers(wanted, len(there), [bitmap], nulls)
            mask = pa.array(there == 0) if nulls else None
            return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
        if kind == kernel.TEXT:
            buffers = self._texts(row, wanted)
        elif kind == kernel.BOOLEAN:
            buffers = [pa.py_buffer(np.packbits(self.words[row].astype(np.uint8), bitorder="little"))]
        else:
            # A copy: a column that was part of `words` would keep all of these.
            found = self.words[row].astype(np.int32 if kind == kernel.INT else np.int64)
            buffers = [pa.py_buffer(found)]
        return pa.Array.from_buffers(wanted, len(there), [bitmap, *buffers], nulls)

    def _texts(self, row: int, wanted: pa.DataType) -> list[pa.Buffer]:
        starts, sizes = np.ascontiguousarray(self.words[row]), self.words[row + 1]
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        found = np.empty(int(offsets[-1]), np.uint8)
        kernel.gather(self.data, self.unescaped, starts, offsets, found)
        short = offsets.astype(np.int32) if pa.types.is_string(wanted) else offsets
        return [pa.py_buffer(short), pa.py_buffer(found)]


def _kind(of: pa.DataType) -> int:
    if pa.types.is_struct(of):
        return kernel.STRUCT
    for matches, kind in _KINDS:
        if matches(of):
            return kind
    raise _NotForThis


_POWERS = powers_of_five()

"""An Avro schema as a program for the kernel, and the columns that its words become.

As `vectorised` reads records, which is for what a program lacks: arrays and maps, unions of several types. What is
unusual about a record makes it a suspect here as it does there, and then others read it on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from calve.sink_core.packed import Packed
from calve.sink_core.records.avro import kernel
from calve.sink_core.records.avro.schema import Node, WriterSchema, exact, is_for_many_at_once, logical
from calve.sink_core.records.avro.vectorised import GaveUp, carried, is_text
from calve.sink_core.texts import gather

Bools = npt.NDArray[np.bool_]
_Make = Callable[["_Words"], pa.Array]

_WHOLE = ("int", "long")
_NUMBERS = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
_BYTES = ("bytes", "string")


class _Suspects(Exception):
    """Records, by their places, that are not for this reader."""

    def __init__(self, suspect: Bools) -> None:
        super().__init__()
        self.suspect = suspect


def program(schema: WriterSchema, carrier: pa.DataType) -> Program | None:
    """The program for values of `schema` as columns of the struct `carrier`; None if there can be none."""
    record = schema.record
    if record is None or schema.resolved(schema.root) != record or not is_for_many_at_once(schema):
        return None
    made = Program(schema)
    try:
        made.make = made.record(record, carrier, -1)
    except GaveUp:
        return None
    return made


@dataclass(slots=True)
class _Words:
    """What the kernel filled for n records of `data`: rows of words for steps, a row of validity for each union."""

    data: npt.NDArray[np.uint8]
    words: npt.NDArray[np.int64]
    valid: npt.NDArray[np.uint8]

    def there(self, row: int) -> Bools | None:
        """Where the union of a row holds a value; None if it does everywhere."""
        return None if row < 0 or self.valid[row].all() else self.valid[row].astype(np.bool_)

    def bitmap(self, row: int) -> pa.Buffer | None:
        there = self.there(row)
        return None if there is None else pa.py_buffer(np.packbits(there, bitorder="little"))

    def numbers(self, row: int, valid: int, kind: pa.DataType) -> pa.Array:
        # A copy: a column that was part of `words` would keep all of these.
        buffers = [self.bitmap(valid), pa.py_buffer(self.words[row].copy())]
        return pa.Array.from_buffers(kind, self.words.shape[1], buffers)

    def bytes(self, row: int, valid: int) -> pa.Array:
        """Those of BYTES, as large_binary."""
        starts, sizes = self.words[row], self.words[row + 1]
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        found = np.empty(int(offsets[-1]), np.uint8)
        gather(self.data, starts, offsets, found)
        buffers = [self.bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(found)]
        return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers)

    def fixed(self, row: int, valid: int, size: int) -> pa.Array:
        """Those of FIXED, zeros where there are none."""
        there = self.words[row + 1] == size
        found = np.zeros((len(there), size), np.uint8)
        if there.any():  # else the data may be shorter than one
            found[there] = np.lib.stride_tricks.sliding_window_view(self.data, size)[self.words[row][there]]
        return pa.Array.from_buffers(pa.binary(size), len(there), [self.bitmap(valid), pa.py_buffer(found)])


@dataclass(slots=True)
class Program:
    """Steps, and what makes columns of what they read."""

    schema: WriterSchema
    steps: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    rows: int = 0
    unions: int = 0
    make: _Make | None = None

    def read(self, values: Packed, header_bytes: int) -> tuple[pa.RecordBatch, list[int]] | None:
        """As `vectorised.Reader`."""
        suspect = np.zeros(len(values), np.bool_)
        # The second time without those that the kernel suspects, the third without text that is none.
        for _ in range(3):
            places = np.flatnonzero(~suspect)
            try:
                rows = self._read(values if len(places) == len(values) else values.at(places), header_bytes)
            except _Suspects as found:
                suspect[places[found.suspect]] = True
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return None
            else:
                return pa.RecordBatch.from_struct_array(rows), np.flatnonzero(suspect).tolist()
        return None

    def _read(self, values: Packed, header_bytes: int) -> pa.Array:
        n = len(values)
        words, valid = np.zeros((self.rows, n), np.int64), np.ones((self.unions, n), np.uint8)
        suspect, steps = np.zeros(n, np.uint8), np.array(self.steps, np.int64).reshape(-1, kernel.STEP_WORDS)
        kernel.read(
            values.data,
            np.ascontiguousarray(values.starts),
            np.ascontiguousarray(values.ends),
            header_bytes,
            steps,
            words,
            valid,
            suspect,
        )
        if suspect.any():
            raise _Suspects(suspect.astype(np.bool_))
        assert self.make is not None
        return self.make(_Words(values.data, words, valid))

    def _step(
        self, kind: int, row: int = -1, valid: int = -1, number: int = 0, value: int = 0, leaves_out: int = 0
    ) -> int:
        """The number of the step, which is added."""
        self.steps.append((kind, row, valid, number, value, leaves_out))
        return len(self.steps) - 1

    def _row(self, words: int = 1) -> int:
        self.rows += words
        return self.rows - words

    def _of(self, given: Node, carrier: pa.DataType | None, valid: int) -> _Make:
        """Makes the column of `given`, null where the union of the row `valid` is; without a carrier it is all null."""
        node = self.schema.resolved(given)
        if isinstance(node, list):
            if valid >= 0:
                raise GaveUp
            return self._union(cast(list[Node], node), carrier)
        if node == "null":
            return _nothing
        if carrier is not None and pa.types.is_null(carrier):
            # A value here makes its record a bad one.
            raise GaveUp
        kind = str(node["type"]) if isinstance(node, dict) else node
        if kind in ("record", "error"):
            return self.record(cast(dict[str, Any], node), carrier, valid)
        return self._leaf(node, kind, carrier, valid)

    def record(self, node: dict[str, Any], carrier: pa.DataType | None, valid: int) -> _Make:
        """Makes the struct of a record."""
        if carrier is not None and not carrier.num_fields:
            raise GaveUp
        wanted = {of.name: of.type for of in carrier} if carrier is not None else {}
        makers = {str(m["name"]): self._of(m["type"], wanted.get(str(m["name"])), -1) for m in node["fields"]}
        if carrier is None:
            return lambda words: [make(words) for make in makers.values()] and _nothing(words)

        def make(words: _Words) -> pa.Array:
            there = words.there(valid)
            found = {name: maker(words) for name, maker in makers.items()}
            columns = [found.get(of.name) for of in carrier]
            columns = [_nothing(words) if column is None else column for column in columns]
            mask = None if there is None else pa.array(~there)
            return pa.StructArray.from_arrays(columns, fields=list(carrier), mask=mask)

        return make

    def _union(self, branches: list[Node], carrier: pa.DataType | None) -> _Make:
        values = [branch for branch in branches if branch != "null"]
        if len(values) != 1:
            raise GaveUp
        place = branches.index(values[0])
        if carrier is not None and pa.types.is_null(carrier):
            # A value where none fits the column makes its record a bad one; nulls are well.
            self._step(kernel.UNION, number=len(branches), value=place, leaves_out=-1)
            return _nothing
        valid = self.unions
        self.unions += 1
        step = self._step(kernel.UNION, -1, valid, len(branches), place)
        make = self._of(values[0], carrier, valid)
        self.steps[step] = (*self.steps[step][:-1], len(self.steps) - 1 - step)
        return make

    def _leaf(self, node: Node, kind: str, carrier: pa.DataType | None, valid: int) -> _Make:
        if kind == "fixed":
            return self._fixed(cast(dict[str, Any], node), carrier, valid)
        if kind in _BYTES:
            row = self._row(2)
            self._step(kernel.BYTES, row, valid)
            if kind == "string":
                return _finished(_text(row, valid), carrier)
            return _bytes(node, carrier, lambda words: words.bytes(row, valid))
        row = self._row() if carrier is not None else -1
        if kind in _WHOLE:
            self._step(kernel.WHOLE, row, valid)
            return _finished(_numbers(row, valid, pa.int64()), carrier)
        if kind in _NUMBERS:
            self._step(kernel.NUMBER, row, valid, _NUMBERS[kind].itemsize)
            return _finished(_floats(row, valid, _NUMBERS[kind]), carrier)
        if kind == "boolean":
            self._step(kernel.BOOLEAN, row, valid, 1)
            return _finished(lambda words: _booleans(words, row, valid), carrier)
        if kind == "enum":
            symbols = cast(list[str], cast(dict[str, Any], node)["symbols"])
            self._step(kernel.ENUM, row, valid, len(symbols))
            names = pa.array(symbols, carrier or pa.large_string())
            return _finished(lambda words: names.take(words.numbers(row, valid, pa.int64())), carrier)
        raise GaveUp

    def _fixed(self, node: dict[str, Any], carrier: pa.DataType | None, valid: int) -> _Make:
        size, row = int(node["size"]), self._row(2)
        if size == 0:
            raise GaveUp
        self._step(kernel.FIXED, row, valid, size)
        return _bytes(node, carrier, lambda words: words.fixed(row, valid, size))


def _nothing(words: _Words) -> pa.Array:
    return pa.nulls(words.words.shape[1])


def _finished(make: _Make, carrier: pa.DataType | None) -> _Make:
    """The column as its carrier has it."""
    return make if carrier is None else lambda words: carried(make(words), carrier)


def _numbers(row: int, valid: int, kind: pa.DataType) -> _Make:
    return _nothing if row < 0 else lambda words: words.numbers(row, valid, kind)


def _floats(row: int, valid: int, of: np.dtype[Any]) -> _Make:
    def make(words: _Words) -> pa.Array:
        # A float is in the lower half of its word.
        with np.errstate(invalid="ignore"):  # a NaN of any bits is one
            found = words.words[row].view(of)[:: words.words.itemsize // of.itemsize].astype(np.float64)
        buffers = [words.bitmap(valid), pa.py_buffer(found)]
        return pa.Array.from_buffers(pa.float64(), len(found), buffers)

    return _nothing if row < 0 else make


def _booleans(words: _Words, row: int, valid: int) -> pa.Array:
    if row < 0:
        return _nothing(words)
    bits = pa.py_buffer(np.packbits(words.words[row].astype(np.bool_), bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), words.words.shape[1], [words.bitmap(valid), bits])


def _bytes(node: Node, carrier: pa.DataType | None, make: _Make) -> _Make:
    if logical(node) != "decimal" or carrier is None:
        return _finished(make, carrier)
    scale = int(cast(dict[str, Any], node).get("scale", 0))

    def numbers(words: _Words) -> pa.Array:
        found = make(words).to_pylist()
        return pa.array([None if value is None else exact(value, scale) for value in found], carrier)

    return numbers


def _text(row: int, valid: int) -> _Make:
    """Also where it isn't wanted: text that isn't UTF-8 makes the record a bad one."""

    def make(words: _Words) -> pa.Array:
        found = words.bytes(row, valid)
        if _is_ascii(found):
            return pa.Array.from_buffers(pa.large_string(), len(found), found.buffers(), found.null_count)
        try:
            return found.cast(pa.large_string())
        except pa.ArrowInvalid:
            pass
        bad = np.array([value is not None and not is_text(value) for value in found.to_pylist()], np.bool_)
        raise _Suspects(bad)

    return make


def _is_ascii(found: pa.Array) -> bool:
    """Whether no byte is beyond ASCII. For that the bytes are text, Arrow takes four times as long to see."""
    content = np.frombuffer(found.buffers()[2], np.uint8)
    return len(content) == 0 or bool(content.max() < 0x80)

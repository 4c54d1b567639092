"""One field of each record as text, whatever the format, to route records by."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IcebergType, LongType, NestedField, StringType, StructType

from calve.sink_core.records.columns.names import UNCOUNTED
from calve.sink_core.records.decode.decoded import FIT, BadValue
from calve.sink_core.records.decode.format import Format

# Tried one after the other: no format gives a value as another type than its own.
_KINDS = (StringType(), LongType(), BooleanType())


class TextField:
    """Reads the field at `path` (`outer.inner` for a nested one)."""

    def __init__(self, path: str, value_format: Format) -> None:
        self._names = path.split(".")
        self._decoders = [value_format.decoder(_schema(self._names, kind), (), UNCOUNTED) for kind in _KINDS]

    def read(self, values: Sequence[bytes]) -> tuple[list[str | None], dict[int, BadValue]]:
        """Texts, whole numbers and booleans as text; None for what is missing, null or of another type. By index the
        verdict on a value that is not of the format.
        """
        texts: list[str | None] = [None] * len(values)
        bad: dict[int, BadValue] = {}
        left, most = list(range(len(values))), (0, self._decoders[0])
        for decoder in list(self._decoders):
            if not left:
                break
            decoded = decoder.decode([values[place] for place in left])
            good = range(len(left)) if decoded.good is None else decoded.good
            for index, found in zip(good, self._column(decoded.columns).to_pylist(), strict=True):
                texts[left[index]] = _text(found)
            most = max(most, (len(good), decoder), key=lambda each: each[0])
            bad |= {left[verdict.index]: verdict for verdict in decoded.bad if verdict.stage != FIT}
            left = [left[verdict.index] for verdict in decoded.bad if verdict.stage == FIT]
        # Records that don't fit are slow to sort out; the next ones are likely to be like most of these.
        self._decoders.sort(key=lambda decoder: decoder is not most[1])
        return texts, bad

    def _column(self, columns: pa.RecordBatch) -> pa.Array:
        column = columns.column(0)
        return pc.call_function("struct_field", [column], _inner(len(self._names))) if len(self._names) > 1 else column


def _inner(depth: int) -> pc.FunctionOptions:
    """The first field of the first field and so on, nulls of the outer ones included."""
    return pc.StructFieldOptions([0] * (depth - 1))


def _schema(names: Sequence[str], kind: IcebergType) -> Schema:
    for number in range(len(names), 1, -1):
        kind = StructType(NestedField(number, names[number - 1], kind, required=False))
    return Schema(NestedField(1, names[0], kind, required=False))


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)

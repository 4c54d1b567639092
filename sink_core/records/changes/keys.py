"""Kafka keys as keys of a table: what a tombstone, which has no value, says of the row that goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DecimalType, IntegerType, LongType

from calve.sink_core.records.changes.rows import NO_ORDER
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.records.columns.names import UNCOUNTED
from calve.sink_core.records.decode.decoded import FIT, BadValue, Decoded, cut, placed
from calve.sink_core.records.json.decoder import JsonDecoder

NO_KEY = "a tombstone without a key: nothing says which row goes"
_BARE = (BooleanType, IntegerType, LongType, DecimalType)


def orderless(number: int, key: Schema, order_by: str) -> Decoded:
    """What that many tombstones say where changes are ordered by a column, which these lack: all are bad."""
    said = cut(f"{order_by}: {NO_ORDER}: it is a tombstone")
    nothing = pa.RecordBatch.from_pylist([], schema=arrow_schema(key))
    return Decoded(nothing, [], tuple(BadValue(place, FIT, said) for place in range(number)))


class RowKeyDecoder:
    """Decodes Kafka keys by the table's key columns: a JSON object with these, or where it is one column its text."""

    def __init__(self, schema: Schema) -> None:
        self._decoder = JsonDecoder(schema, (), UNCOUNTED)
        self._only = schema.fields[0] if len(schema.fields) == 1 else None

    def decode(self, keys: Sequence[bytes | None]) -> Decoded:
        """As a decoder of values does; a key that is missing or none of the table's is bad."""
        bad = {place: BadValue(place, FIT, NO_KEY) for place, key in enumerate(keys) if key is None}
        given = [(place, self._as_object(key)) for place, key in enumerate(keys) if key is not None]
        decoded = self._decoder.decode([value for _, value in given])
        found = placed(decoded, [place for place, _ in given], bad)
        told = (b if b.index in bad else replace(b, message=cut(f"key of a tombstone: {b.message}")) for b in found.bad)
        return replace(found, bad=tuple(told))

    def _as_object(self, key: bytes) -> bytes:
        text = key.strip()
        if self._only is None or (text.startswith(b"{") and text.endswith(b"}")):
            return key
        try:
            value = text.decode() if isinstance(self._only.field_type, _BARE) else json.dumps(key.decode())
            json.loads(value)
        except (ValueError, RecursionError):
            # No JSON object: the verdict says so.
            return key
        return f"{{{json.dumps(self._only.name)}: {value}}}".encode()

"""The keys of records, read as the pipeline file says: what a transform's SQL sees of them.

A key with fields is read as a value of its format is. One that is a single value is put into a record of one field
first, which changes nothing in Avro and little in JSON.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import KeySettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.records.columns.kafka_column import RAW_KEY
from calve.sink_core.records.columns.names import UNCOUNTED
from calve.sink_core.records.columns.type_text import parse_type, type_text
from calve.sink_core.records.decode.decoded import DECODE, BadValue, Decoded, cut, placed
from calve.sink_core.records.decode.format import Format
from calve.sink_core.records.formats import format_of
from calve.sink_core.records.raw_value import COLUMN, whole_schema

Keys = Callable[[], Sequence[bytes | None]]
"""The keys of records as they are in Kafka, when they are asked for."""

_SINGLE = "key"


def key_type(as_type: str, setting: str = "source.key") -> pa.DataType:
    """What a key read as this Iceberg type is in SQL. Raises ConfigError if there is no such type."""
    return arrow_schema(Schema(NestedField(1, _SINGLE, _parsed(as_type, setting), required=False))).field(0).type


class KeyDecoder:
    """Reads keys of one format. Raises ConfigError for a type that is none, or that keys of the format can't be."""

    def __init__(self, settings: KeySettings) -> None:
        kind = _parsed(settings.as_type, settings.setting)
        self.shown, self.type = type_text(kind), key_type(settings.as_type, settings.setting)
        self._has_fields, self._whole = isinstance(kind, StructType), settings.format.type in ("string", "bytes")
        if settings.format.type == "protobuf" and not self._has_fields:
            raise ConfigError(
                f"{settings.setting}.as: Protobuf's keys are messages, not {self.shown}",
                hint="set as: struct<…>",
                code=Code.PROTOBUF_KEY,
            )
        self._single: Callable[[bytes], bytes] | None = None
        schema, key_format = self._schema(kind, settings.format.type), format_of(settings.format)
        if not self._has_fields and not self._whole:
            key_format = _single_avro(key_format) if settings.format.type == "avro" else key_format
            self._single = _SINGLES.get(settings.format.type)
        self._decoder = key_format.decoder(schema, (), UNCOUNTED)

    def _schema(self, kind: IcebergType, format_type: str) -> Schema:
        if isinstance(kind, StructType):
            return Schema(*kind.fields)
        return whole_schema(format_type) if self._whole else Schema(NestedField(1, _SINGLE, kind, required=True))

    def decode(self, keys: Sequence[bytes]) -> tuple[pa.Array, Sequence[int], tuple[BadValue, ...]]:
        """The good keys as an array, their places, and the bad ones. Raises as `Decoder.decode` does."""
        decoded = self._decoder.decode(keys) if self._single is None else self._singles(keys, self._single)
        columns = decoded.columns
        if self._has_fields:
            array = pa.StructArray.from_arrays(columns.columns, fields=list(self.type))
        else:
            array = columns.column(COLUMN if self._whole else _SINGLE)
        bad = tuple(replace(each, message=self._said(each.message)) for each in decoded.bad)
        return array, range(len(keys)) if decoded.good is None else decoded.good, bad

    def _singles(self, keys: Sequence[bytes], single: Callable[[bytes], bytes]) -> Decoded:
        ready, bad = dict[int, bytes](), dict[int, BadValue]()
        for place, key in enumerate(keys):
            try:
                ready[place] = single(key)
            except (ValueError, RecursionError) as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
        return placed(self._decoder.decode(list(ready.values())), list(ready), bad)

    def _said(self, message: str) -> str:
        return message if message.startswith(f"{_SINGLE}: ") else cut(f"{_SINGLE}: {message}")


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """The keys of n records. `bad` are those of records that can't be stored, by place; `are_read` says which
    are bytes that others say, such as base64, None that none are.
    """

    raw: Keys
    arrays: Mapping[pa.DataType, pa.Array] = field(default_factory=dict[pa.DataType, pa.Array])
    bad: Mapping[int, BadValue] = field(default_factory=dict[int, BadValue])
    left_out: npt.NDArray[np.bool_] | None = None
    are_read: npt.NDArray[np.bool_] | None = None

    def of(self, kind: pa.DataType, places: Sequence[int]) -> pa.Array:
        """The keys of the records at these places as SQL sees them: null where a record has none, or is bad."""
        if kind != RAW_KEY:
            found = self.arrays.get(kind)
            return pa.nulls(len(places), kind) if found is None else found.take(pa.array(places, pa.int64()))
        raw, out = self.raw(), self.left_out
        left_out = set[int]() if out is None else set(np.flatnonzero(out).tolist())
        keys = pa.array([None if place in left_out else raw[place] for place in places], RAW_KEY)
        if self.are_read is None:
            return keys
        read = self.arrays[RAW_KEY].take(pa.array(places, pa.int64()))
        return pc.if_else(pa.array(self.are_read[list(places)]), read, keys)


class KeyReader:
    """Reads the keys of a task's records; `slices` says how those of each slice are read."""

    def __init__(self, slices: Sequence[KeySettings]) -> None:
        chosen = list(dict.fromkeys(settings for settings in slices if settings.is_read))
        self._decoders = [KeyDecoder(settings) for settings in chosen]
        self._decoder_of = np.array([chosen.index(s) if s.is_read else -1 for s in slices], np.int64)
        self._left_out = np.array([settings.format.type == "none" for settings in slices], np.bool_)

    def read(self, keys: Keys, slices: npt.NDArray[np.int64]) -> ReadKeys:
        """The keys of records, of which `slices` says the slice. Raises as `Decoder.decode` does."""
        left_out = self._left_out[slices] if self._left_out.any() else None
        if not self._decoders:
            return ReadKeys(keys, left_out=left_out)
        raw, which = keys(), self._decoder_of[slices]
        bad, found = dict[int, BadValue](), dict[pa.DataType, list[tuple[list[int], pa.Array]]]()
        for number, decoder in enumerate(self._decoders):
            places = [place for place in np.flatnonzero(which == number).tolist() if raw[place] is not None]
            array, good, verdicts = decoder.decode([key for place in places if (key := raw[place]) is not None])
            bad |= {places[verdict.index]: replace(verdict, index=places[verdict.index]) for verdict in verdicts}
            found.setdefault(decoder.type, []).append(([places[at] for at in good], array))
        arrays = {kind: _spread(parts, kind, len(raw)) for kind, parts in found.items()}
        of_bytes = [number for number, decoder in enumerate(self._decoders) if decoder.type == RAW_KEY]
        return ReadKeys(partial(_same, raw), arrays, bad, left_out, np.isin(which, of_bytes) if of_bytes else None)


def _same(keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
    return keys


def _spread(parts: Sequence[tuple[list[int], pa.Array]], kind: pa.DataType, number: int) -> pa.Array:
    """One array of `number` keys from parts with their places."""
    rows = np.full(number, -1, np.int64)
    places = [place for part, _ in parts for place in part]
    rows[places] = np.arange(len(places))
    together = pa.concat_arrays([array.cast(kind) for _, array in parts])
    return together.take(pa.array(rows, mask=rows < 0))


def _parsed(as_type: str, setting: str) -> IcebergType:
    return parse_type(as_type, partial(next, count(2)), column=f"{setting}.as")


def _single_avro(key_format: Format) -> Format:
    """The format with each schema made that of a record whose only field has what was the value."""
    # Imported where they are needed: other keys need no HTTP client.
    from calve.sink_core.records.avro.format import FixedAvro
    from calve.sink_core.records.avro.schema import WriterSchema, within_record
    from calve.sink_core.records.decode.registry_format import RegistryFormat

    if isinstance(key_format, FixedAvro):
        return FixedAvro(within_record(key_format.schema, _SINGLE))
    assert isinstance(key_format, RegistryFormat)

    class Within:
        """The registry's schemas, each made so once."""

        header_bytes = key_format.schemas.header_bytes

        def __init__(self) -> None:
            self._made: dict[str, WriterSchema] = {}

        def writer_of(self, value: bytes) -> WriterSchema:
            schema: WriterSchema = key_format.schemas.writer_of(value)
            if schema.name not in self._made:
                self._made[schema.name] = within_record(schema, _SINGLE)
            return self._made[schema.name]

    return replace(key_format, schemas=Within())


def _single_json(key: bytes, header: int = 0) -> bytes:
    json.loads(key[header:].decode())
    return b'%b{"%b":%b}' % (key[:header], _SINGLE.encode(), key[header:])


def _single_json_schema(key: bytes) -> bytes:
    from calve.sink_core.records.decode.registry import HEADER_BYTES, schema_id

    schema_id(key)
    return _single_json(key, HEADER_BYTES)


def _single_connect(key: bytes) -> bytes:
    from calve.sink_core.records.connect.envelope import opened

    envelope = opened(key)
    schema = json.loads(envelope.schema)
    if isinstance(schema, dict):
        schema = {"type": "struct", "fields": [{**schema, "field": _SINGLE}]}
    payload = b'{"%b":%b}' % (_SINGLE.encode(), envelope.payload)
    return b'{"schema":%b,"payload":%b}' % (json.dumps(schema).encode(), payload)


_SINGLES: Mapping[str, Callable[[bytes], bytes]] = {
    "json": _single_json,
    "json_schema": _single_json_schema,
    "connect_json": _single_connect,
}

"""`AvroRecords`: records of row changes in Avro, in Confluent's wire format, their schemas registered as they come up.

Numbers, truth values and bytes are Avro's own, everything else is the text that JSON has. Every column is nullable, so
that a table may change as it likes and schemas stay compatible.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.decode.registry import Registry
from calve.sink_core.source.base import Record
from calve.sink_core.source.postgres.records import UNAVAILABLE_TEXT, Layout

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
_BY_TYPE = {16: "boolean", 17: "bytes", 20: "long", 21: "int", 23: "int", 26: "long", 700: "float", 701: "double"}
_SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        *({"name": name, "type": "string"} for name in ("connector", "db", "schema", "table", "snapshot")),
        *({"name": name, "type": "long"} for name in ("txId", "lsn", "ts_ms")),
    ],
}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Written:
    """How a table's records are written: headers with the ids of its schemas, and the schemas. `values` make values of
    JSON those of Avro, by column.
    """

    key_header: bytes
    key: Any
    value_header: bytes
    value: Any
    values: Mapping[str, Callable[[Any], Any]]


class AvroRecords:
    """Makes JSON records Avro ones; keeps what it has registered. `debezium`: values are change events.

    Raises Unreachable and ConfigError as the registry does, ConfigError for a column whose name Avro can't have.
    """

    def __init__(self, registry: RegistrySettings, *, debezium: bool) -> None:
        self._registry, self._debezium = Registry(registry), debezium
        self._written: dict[Layout, _Written] = {}

    def __call__(self, layout: Layout, records: Sequence[Record]) -> list[Record]:
        written = self._written.get(layout)
        if written is None:
            written = self._written[layout] = self._made(layout)
        return [self._of(written, record) for record in records]

    def _of(self, written: _Written, record: Record) -> Record:
        key, value = (None if part is None else json.loads(part) for part in (record.key, record.value))
        if key is not None:
            key = _framed(written.key_header, written.key, _row(written, key))
        if value is not None:
            if self._debezium:
                value |= {side: None if value[side] is None else _row(written, value[side]) for side in _SIDES}
            else:
                value = _row(written, value)
            value = _framed(written.value_header, written.value, value)
        return Record(record.topic, key, value, record.headers, record.timestamp_ms, record.partition)

    def _made(self, layout: Layout) -> _Written:
        names = list(layout.names)
        if odd := [name for name in names if not _NAME(name)]:
            raise ConfigError(
                f"{layout.name}: a field of Avro can't be called {odd[0]!r}",
                hint="leave the column out of the publication, or write JSON",
                code=Code.NO_AVRO_NAME,
            )
        kinds = {name: _BY_TYPE.get(kind, "string") for name, kind in zip(names, layout.kinds, strict=True)}
        fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in kinds.items()]
        space = ".".join(_plain(part) for part in layout.topic.split("."))
        row: Json = {"type": "record", "name": "Value", "namespace": space, "fields": fields}
        key: Json = {"type": "record", "name": "Key", "namespace": space, "fields": [fields[at] for at in layout.key]}
        value = row if not self._debezium else _envelope(row, space)
        key_header = self._header(f"{layout.topic}-key", key) if layout.key else b""
        return _Written(
            key_header,
            fastavro.parse_schema(key),
            self._header(f"{layout.topic}-value", value),
            fastavro.parse_schema(value),
            {name: _TO_AVRO[kind] for name, kind in kinds.items() if kind in _TO_AVRO},
        )

    def _header(self, subject: str, schema: Json) -> bytes:
        return b"\0" + self._registry.register(subject, json.dumps(schema)).to_bytes(4, "big")


_SIDES = ("before", "after")


def _envelope(row: Json, space: str) -> Json:
    """A change event; its second mention of the row is by name."""
    sides = zip(_SIDES, (row, f"{space}.Value"), strict=True)
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": space,
        "fields": [
            *({"name": side, "type": ["null", of], "default": None} for side, of in sides),
            {"name": "source", "type": _SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": "long"},
        ],
    }


def _row(written: _Written, row: Json) -> Json:
    """With values as Avro has them."""
    for name, convert in written.values.items():
        if row.get(name) is not None:
            row[name] = convert(row[name])
    return row


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _bytes(value: str) -> bytes:
    return value.encode() if value == UNAVAILABLE_TEXT else base64.b64decode(value)


_TO_AVRO: Mapping[str, Callable[[Any], Any]] = {"string": _text, "bytes": _bytes, "float": float, "double": float}


def _framed(header: bytes, schema: Any, value: Json) -> bytes:
    out = io.BytesIO(header)
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _plain(name: str) -> str:
    """As part of a namespace."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if _NAME(plain) else f"_{plain}"

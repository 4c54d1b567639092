"""One record in an Avro object container file, which is how an event stands in a message.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import fastavro

from calve.sink_core.control.schemas import KIND_KEY, MIN_READER_KEY, Schema

_CODEC = "deflate"
_CODEC_KEY = "avro.codec"
_MAGIC = b"Obj\x01"
_SCHEMA_KEY = "avro.schema"
_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_BLOCK = fastavro.parse_schema(
    {
        "type": "record",
        "name": "block",
        "fields": [{"name": "records", "type": "long"}, {"name": "content", "type": "bytes"}],
    }
)


@dataclass(frozen=True, slots=True)
class Container:
    """The event's name, the reader version that it needs, the `kind` of pipeline that wrote it ("" if it doesn't say),
    and the reading of its record, of which other versions may not know what to make.
    """

    name: str
    min_reader: int
    kind: str
    record: Callable[[], dict[str, Any]]


class Containers:
    """Writes and reads containers of events of one kind of pipeline, by name with their schemas in this version."""

    def __init__(self, schemas: Mapping[str, Schema], kind: str) -> None:
        self._kind = kind
        self._parsed = {name: fastavro.parse_schema(schema) for name, schema in schemas.items()}
        self._own = {self._schema_text(name): name for name in schemas}

    def packed(self, name: str, record: Mapping[str, Any], *, min_reader: int) -> bytes:
        """The record of the event `name` in a container."""
        return self._container(name, [record], {MIN_READER_KEY: str(min_reader), KIND_KEY: self._kind})

    def opened(self, value: bytes) -> Container:
        """What is in the container. Fails in as many ways as Avro, zlib and JSON can, also when the record is read."""
        file = io.BytesIO(value)
        header = cast(dict[str, Any], fastavro.schemaless_reader(file, _HEADER, None))
        if header["magic"] != _MAGIC:
            raise ValueError("not an Avro container")
        meta = header["meta"]
        name, min_reader = self._own.get(meta[_SCHEMA_KEY]), int(meta[MIN_READER_KEY])
        kind = meta.get(KIND_KEY, b"").decode()
        if name is not None and meta[_CODEC_KEY] == _CODEC.encode():
            return Container(name, min_reader, kind, partial(self._of_own_schema, file, header["sync"], name))
        schema = cast(dict[str, Any], fastavro.reader(io.BytesIO(value)).writer_schema)
        name = str(schema["name"]).removeprefix("calve.")
        return Container(name, min_reader, kind, partial(self._of_other_schema, value, name))

    def _container(self, name: str, records: list[Mapping[str, Any]], metadata: Mapping[str, str]) -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, self._parsed[name], records, codec=_CODEC, metadata=dict(metadata))
        return out.getvalue()

    def _of_own_schema(self, file: io.BytesIO, sync: bytes, name: str) -> dict[str, Any]:
        """Of a schema that needs no parsing, which takes fastavro's reader of containers twice as long as all else."""
        block = cast(dict[str, Any], fastavro.schemaless_reader(file, _BLOCK, None))
        if block["records"] != 1 or file.read() != sync:
            raise ValueError("not a container of one record")
        content = zlib.decompress(block["content"], -zlib.MAX_WBITS)
        return cast(dict[str, Any], fastavro.schemaless_reader(io.BytesIO(content), self._parsed[name], None))

    def _of_other_schema(self, value: bytes, name: str) -> dict[str, Any]:
        return cast(dict[str, Any], next(iter(fastavro.reader(io.BytesIO(value), reader_schema=self._parsed[name]))))

    def _schema_text(self, name: str) -> bytes:
        """The schema as it stands in containers of this version."""
        header = fastavro.schemaless_reader(io.BytesIO(self._container(name, [], {})), _HEADER, None)
        return cast(dict[str, Any], header)["meta"][_SCHEMA_KEY]

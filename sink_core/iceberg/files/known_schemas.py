"""Avro files of tables' metadata, which are many, and written in two or three schemas.

For each file pyiceberg works out how its schema becomes the one that is read, which takes seven times as long as
reading the one entry of a small batch. Here that is remembered by the text of the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Generic, TypeVar

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import InputFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol

_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_SCHEMA = "avro.schema"
_SCHEMAS_KEPT = 64

D = TypeVar("D", bound=StructProtocol)


class AvroReader(Generic[D]):
    """Reads the records of files as `schema` has them, its structs and enumerations as these types, by field id."""

    def __init__(
        self,
        schema: Schema,
        types: Mapping[int, Callable[..., StructProtocol]],
        enums: Mapping[int, Callable[..., Enum]],
    ) -> None:
        self._schema, self._types, self._enums = schema, dict(types), dict(enums)
        self._reader_of = lru_cache(_SCHEMAS_KEPT)(self._resolved)

    def read(self, file: InputFile, content: bytes) -> Iterator[D]:
        """The records in the content of a file. Raises ValueError for what is no Avro file."""
        with _OfKnownSchema[D](file, content, self._reader_of) as records:
            yield from records

    def _resolved(self, schema: str) -> Reader:
        written_in = AvroFileHeader(b"", {_SCHEMA: schema}, b"").get_schema()
        return resolve_reader(written_in, self._schema, self._types, self._enums)


class _OfKnownSchema(AvroFile[D]):
    def __init__(self, file: InputFile, content: bytes, reader_of: Callable[[str], Reader]) -> None:
        super().__init__(file)
        self._content, self._reader_of = content, reader_of

    def __enter__(self) -> _OfKnownSchema[D]:
        self.decoder = new_decoder(self._content)
        self.header = _HEADER.read(self.decoder)
        self.reader = self._reader_of(self.header.meta.get(_SCHEMA, ""))
        return self

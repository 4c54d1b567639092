"""The formats of records, as a pipeline file names them: one row each. What a row leads to is in `records/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, WithJsonSchema

from calve.sink_core.config.model import refusal

Schemas = Literal["none", "registry", "registry or file"]


@dataclass(frozen=True, slots=True)
class FormatRow:
    """A format: `make`, as `module:function`, is given a `ValueSettings` and makes what decodes.

    `schemas` says where its schemas come from. A `whole` value is taken as it is. `modules` are what a task imports for
    it beside what all formats need.
    """

    name: str
    make: str
    schemas: Schemas = "none"
    whole: bool = False
    modules: tuple[str, ...] = ()


_RECORDS = "calve.sink_core.records"
FORMATS = {
    row.name: row
    for row in (
        FormatRow("json", f"{_RECORDS}.json.format:json_format"),
        FormatRow("connect_json", f"{_RECORDS}.connect.format:connect_json_format"),
        FormatRow("json_schema", f"{_RECORDS}.json_schema.format:json_schema_format", "registry"),
        FormatRow("avro", f"{_RECORDS}.avro.format:avro_format", "registry or file", modules=("fastavro",)),
        FormatRow(
            "protobuf",
            f"{_RECORDS}.protobuf.format:protobuf_format",
            "registry",
            modules=("google.protobuf", "google.type", "grpc_tools.protoc"),
        ),
        FormatRow("string", f"{_RECORDS}.raw_value:whole_format", whole=True),
        FormatRow("bytes", f"{_RECORDS}.raw_value:whole_format", whole=True),
    )
}
"""By name, in the order in which documents list them."""

NO_KEY = "none"
"""The type of a key that is left out."""


def _known(name: str, *others: str) -> str:
    names = [*FORMATS, *others]
    if name not in names:
        raise refusal(f"{name} is no format: {', '.join(names)}")
    return name


ValueType = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(FORMATS)})]
KeyType = Annotated[
    str,
    AfterValidator(lambda name: _known(name, NO_KEY)),
    WithJsonSchema({"type": "string", "enum": [*FORMATS, NO_KEY]}),
]

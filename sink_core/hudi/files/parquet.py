"""The Parquet form of columns in files that Hudi reads."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def without_ids(field: pa.Field) -> pa.Field:
    """The field without those of Iceberg: Hudi knows columns by name."""
    return pa.field(field.name, _type_without_ids(field.type), nullable=field.nullable)


def _type_without_ids(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([without_ids(child) for child in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(without_ids(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(without_ids(kind.key_field), without_ids(kind.item_field))
    return kind


def leaves(schema: pa.Schema) -> Sequence[str]:
    """The Parquet paths of columns that hold no others."""
    return [path for field in schema for path in _paths(field.name, field.type)]


def _paths(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        return [each for child in kind for each in _paths(f"{path}.{child.name}", child.type)]
    if pa.types.is_large_list(kind):
        return _paths(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        key, value = _paths(f"{path}.key_value.key", kind.key_type), _paths(f"{path}.key_value.value", kind.item_type)
        return [*key, *value]
    return [path]

"""Types in memory and in files: a null struct is written whatever is required below it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
)

from calve.sink_core.records.columns.arrow import arrow_schema, conform, file_schema, rebuild

REQUIRED_BELOW = StructType(
    NestedField(2, "i", IntegerType(), required=True),
    NestedField(3, "s", StringType(), required=True),
    NestedField(4, "u", UUIDType(), required=True),
    NestedField(5, "l", ListType(6, LongType(), element_required=True), required=True),
    NestedField(7, "in", StructType(NestedField(8, "d", DecimalType(38, 2), required=True)), required=True),
    NestedField(9, "m", MapType(10, StringType(), 11, LongType(), value_required=True), required=True),
)
REQUIRED_AGAIN = StructType(
    *(field.model_copy(update={"field_id": field.field_id + 100}) for field in REQUIRED_BELOW.fields[:3])
)
WITH_PARAMETERS = {DecimalType, FixedType, GeometryType, GeographyType}
PLAIN: list[Any] = [kind for kind in PrimitiveType.__subclasses__() if kind not in WITH_PARAMETERS]
LEAVES: dict[str, PrimitiveType] = {
    **{kind.__name__: kind() for kind in PLAIN},
    "decimal(9, 0)": DecimalType(9, 0),
    "decimal(38, 10)": DecimalType(38, 10),
    "fixed": FixedType(5),
    "geometry": GeometryType("OGC:CRS84"),
    "geography": GeographyType("OGC:CRS84", "spherical"),
}
WHOLE = {"i": 1, "s": "x", "u": b"0" * 16, "l": [2], "in": {"d": Decimal("1.25")}, "m": [("k", 3)]}


@pytest.mark.parametrize("rows", [[None], [WHOLE, None, WHOLE], [None, WHOLE, None]])
@pytest.mark.parametrize("skipped", [0, 1])
def test_what_is_required_below_a_null_struct_is_written(rows: list[Any], skipped: int, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "o", REQUIRED_BELOW), NestedField(20, "a", ListType(21, REQUIRED_AGAIN, element_required=False))
    )
    kind = arrow_schema(schema)
    given = [{"o": row, "a": [row and {k: row[k] for k in "isu"}, None]} for row in rows]
    # With all fields nullable, as parsers give them.
    loose = pa.RecordBatch.from_pylist(given, schema=pa.schema([_nullable(field) for field in kind]))
    written = conform(loose.slice(skipped).columns, file_schema(schema))
    pq.write_table(pa.Table.from_batches([written]), tmp_path / "f.parquet")
    back = pq.read_table(tmp_path / "f.parquet")
    again = conform(back.combine_chunks().to_batches()[0].columns if len(back) else written.columns, kind)
    assert again.to_pylist() == given[skipped:]


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True).with_type(_all_nullable(field.type))


def _all_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_nullable(kind.value_field))
    return kind


def test_what_lies_below_a_null_struct_is_not_judged() -> None:
    """It may be anything, such as the empty text of a UUID that isn't there."""
    absent = pa.array([True, False, False])
    inner = pa.StructArray.from_arrays([pa.array(["", "a", None])], names=["u"], mask=pa.array([False, False, True]))
    given = pa.StructArray.from_arrays([inner], names=["s"], mask=absent)
    judged = list[str | None]()

    def leaf(array: pa.Array, wanted: pa.DataType) -> pa.Array:
        judged.extend(array.to_pylist())
        return array.cast(wanted)

    wanted = pa.struct([("s", pa.struct([("u", pa.large_string())]))])
    assert rebuild(given, wanted, leaf).to_pylist() == [None, {"s": {"u": "a"}}, {"s": None}]
    assert judged == [None, "a", None]


def _everywhere(leaf: IcebergType) -> Schema:
    """Columns that are, or have within them, the type, required and not, some with a comment."""
    if leaf == UnknownType():
        # It has nothing but nulls, so that nothing of it is required.
        return Schema(NestedField(1, "plain", leaf), NestedField(2, "list", ListType(3, leaf, element_required=False)))
    row = StructType(NestedField(20, "a", leaf, required=True), NestedField(21, "b", leaf, doc="of b", required=False))
    listed = ListType(22, row, element_required=True)
    return Schema(
        NestedField(1, "plain", leaf, required=False),
        NestedField(2, "needed", leaf, required=True, doc="of needed"),
        NestedField(3, "none", StructType(), required=False),
        NestedField(4, "list", ListType(5, leaf, element_required=False), required=True),
        NestedField(6, "map", MapType(7, leaf, 8, leaf, value_required=True), required=False, doc="of map"),
        NestedField(9, "deep", MapType(10, row, 11, ListType(12, listed), value_required=False), required=False),
        NestedField(13, "deeper", StructType(NestedField(14, "in", MapType(15, StringType(), 16, listed)))),
    )


@pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES.keys())
def test_each_type_is_what_pyiceberg_makes_of_it_and_with_its_metadata(leaf: PrimitiveType) -> None:
    schema = _everywhere(leaf)
    assert file_schema(schema).equals(schema_to_pyarrow(schema), check_metadata=True)
    in_memory = _everywhere(FixedType(16)) if leaf == UUIDType() else schema
    assert arrow_schema(schema).equals(schema_to_pyarrow(in_memory), check_metadata=True)

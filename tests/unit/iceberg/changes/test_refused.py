"""Tables that can not take row changes as their settings want it."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import BooleanType, DoubleType, ListType, LongType, NestedField, StringType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable
from calve.sink_core.iceberg.changes.deleted import check_deleted
from calve.sink_core.iceberg.changes.equality import key_of
from calve.sink_core.iceberg.changes.existing_rows import order_of, source_fields
from tests.codes import raises

ID = NestedField(1, "id", LongType(), required=True)
TEXT = NestedField(2, "text", StringType(), required=True)
MARK = NestedField(3, "_is_deleted", BooleanType())
LSN = NestedField(5, "lsn", LongType())
SOURCE = NestedField(4, "source", StructType(LSN))
LISTED = NestedField(6, "all", ListType(7, StructType(NestedField(8, "lsn", LongType()))))


def table_of(*fields: NestedField) -> TableMetadata:
    schema, spec = Schema(*fields), PartitionSpec()
    return new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "t", {"format-version": "2"}, uuid.uuid4())


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ([NestedField(2, "text", StringType())], ["_is_deleted", "ADD COLUMN"]),
        ([NestedField(2, "_is_deleted", StringType())], ["string", "_is_deleted"]),
        ([TEXT, MARK], ["text", "DROP NOT NULL"]),
    ],
)
def test_a_table_that_can_keep_no_deleted_row(fields: list[NestedField], named: list[str]) -> None:
    with raises(Code.SOFT_DELETES, "db.t", *named, of=TableUnusable):
        check_deleted(table_of(ID, *fields), (1,), table="db.t")


def test_a_row_that_keeps_only_its_key_may_be_kept() -> None:
    check_deleted(table_of(ID, NestedField(2, "text", StringType()), MARK), (1,), table="db.t")


@pytest.mark.parametrize(
    ("fields", "key", "code"),
    [
        ([NestedField(1, "id", LongType())], ["id"], Code.OPTIONAL_KEY),
        ([NestedField(1, "id", DoubleType(), required=True)], ["id"], Code.KEY_TYPE),
        ([ID], ["idd"], Code.NO_SUCH_COLUMN),
        ([ID], [], Code.NO_KEY),
    ],
)
def test_a_key_that_tells_no_rows_apart(fields: list[NestedField], key: list[str], code: Code) -> None:
    with raises(code, "db.t", *key, of=TableUnusable):
        key_of(table_of(*fields), key, table="db.t")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("text", Code.ORDER_BY),
        ("all.element.lsn", Code.ORDER_BY),
        ("source.scn", Code.NO_SUCH_COLUMN),
    ],
)
def test_a_column_that_is_no_order(path: str, code: Code) -> None:
    table = table_of(ID, TEXT, SOURCE, LISTED)
    assert order_of(table, "source.lsn", (1,), table="db.t") == LSN.field_id
    with raises(code, "db.t", path, of=TableUnusable):
        order_of(table, path, (1,), table="db.t")


def test_a_table_that_does_not_say_where_its_rows_come_from() -> None:
    with raises(Code.NO_ORIGIN, "db.t", "_kafka", of=TableUnusable):
        source_fields(table_of(ID, TEXT), (1,), table="db.t")

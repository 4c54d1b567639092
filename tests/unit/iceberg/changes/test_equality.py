"""Under which spec deletes lie."""

from __future__ import annotations

import uuid

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.sink_core.iceberg.changes.equality import spec_of_deletes

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=True),
    NestedField(3, "at", StructType(NestedField(4, "country", StringType()))),
)
ID = PartitionField(1, 1000, BucketTransform(4), "id_bucket")
REGION = PartitionField(2, 1001, IdentityTransform(), "region")
COUNTRY = PartitionField(4, 1002, IdentityTransform(), "country")
NOTHING = PartitionField(1, 1003, VoidTransform(), "nothing")
EVERYWHERE = PartitionSpec(spec_id=7)
DROPPED = PartitionField(9, 1004, IdentityTransform(), "dropped")


def spec_of(*specs: PartitionSpec) -> PartitionSpec | None:
    """For deletes by id and region of a table with these specs."""
    made = new_table_metadata(SCHEMA, PartitionSpec(), UNSORTED_SORT_ORDER, "t", {"format-version": "2"}, uuid.uuid4())
    return spec_of_deletes(made.model_copy(update={"partition_specs": list(specs)}), (1, 2))


@pytest.mark.parametrize("fields", [(), (ID,), (REGION, ID)])
def test_the_only_one_if_the_key_says_the_partition(fields: tuple[PartitionField, ...]) -> None:
    spec = PartitionSpec(*fields, spec_id=0)
    assert spec_of(spec) == spec


@pytest.mark.parametrize("fields", [(COUNTRY,), (ID, COUNTRY), (NOTHING,), (ID, NOTHING), (DROPPED,)])
def test_else_one_without_fields(fields: tuple[PartitionField, ...]) -> None:
    spec = PartitionSpec(*fields, spec_id=0)
    assert spec_of(spec) is None
    assert spec_of(spec, EVERYWHERE) == EVERYWHERE


def test_one_without_fields_once_there_is_another() -> None:
    specs = [PartitionSpec(ID, spec_id=0), PartitionSpec(ID, REGION, spec_id=1)]
    assert spec_of(*specs) is None
    assert spec_of(*specs, EVERYWHERE) == EVERYWHERE
    assert spec_of(specs[0], EVERYWHERE) == EVERYWHERE

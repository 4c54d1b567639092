"""Whether a path is one of a table's own."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import Catalog

from calve.sink_core.iceberg.files.places import is_within
from tests.unit.iceberg.commit.on_catalog import SCHEMA


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("s3://lake/a/../air/flights/data/x.parquet", True),
        ("s3a://lake/a/../air/flights/data/x.parquet", True),
        ("s3://lake/a/../air/flights/data/../../payroll/x.parquet", False),
        ("s3://lake/a/../air/flights/data/..\\..\\payroll\\x.parquet", False),
        ("s3://lake/a/../air/flights_of_others/x.parquet", False),
        ("s3://other/a/../air/flights/x.parquet", False),
        ("gs://lake/a/../air/flights/x.parquet", False),
        ("s3://lake/a/../air/flights", False),
        ("file:///elsewhere/x.parquet", True),
        ("file:/elsewhere/x.parquet", True),
        ("/elsewhere/x.parquet", True),
        ("/elsewhere/../etc/passwd", False),
        ("data/x.parquet", False),
        ("", False),
    ],
)
def test_files_of_a_table_are_below_its_locations(path: str, *, is_own: bool, catalog: Catalog) -> None:
    catalog.create_namespace("air")
    metadata = catalog.create_table("air.flights", SCHEMA).metadata.model_copy(
        update={
            "location": "s3://lake/a/../air/flights/",
            "properties": {"write.data.path": "file:///elsewhere"},
        }
    )
    assert is_within(path, metadata) is is_own

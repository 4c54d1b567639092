"""What can be merged, and into what."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, TimeType, UUIDType

from sink_core.batch import ManifestRef
from sink_core.changes.merging import can_merge, check_mergeable
from sink_core.control.events import DataWritten
from sink_core.control.logged import Logged
from sink_core.errors import TableUnusable
from tests.unit.control.build import manifest, written

ROWS, KEYS = manifest("rows"), manifest("keys", content=1)


def events(*batches: tuple[ManifestRef, ...]) -> list[Logged[DataWritten]]:
    return [Logged(at, replace(written(str(at)), manifests=manifests)) for at, manifests in enumerate(batches)]


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        (((ROWS, KEYS),), True),
        (((KEYS,), (ROWS, KEYS)), True),
        # All of its changes were late: it is in the table when the others are.
        (((), (ROWS, KEYS)), True),
        (((),), False),
        ((), False),
        # Published when records were appended, or by a range job.
        (((ROWS,), (ROWS, KEYS)), False),
    ],
)
def test_only_changes_with_their_keys_are_merged(batches: tuple[tuple[ManifestRef, ...], ...], wanted: bool) -> None:
    assert can_merge(events(*batches)) is wanted


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TimeType(), "db.t: column v is time, which Spark can't merge"),
        (ListType(3, UUIDType(), element_required=False), "db.t: column v.element is uuid, which Spark can't merge"),
    ],
)
def test_columns_that_spark_has_otherwise_are_refused(kind: TimeType | ListType, message: str) -> None:
    key = NestedField(1, "id", LongType(), required=True)
    check_mergeable(Schema(key, NestedField(2, "v", StringType())), table="db.t")
    with pytest.raises(TableUnusable, match=message):
        check_mergeable(Schema(key, NestedField(2, "v", kind)), table="db.t")

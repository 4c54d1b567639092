"""Which snapshots go, on metadata made by hand. Iceberg's own expiry is compared in the integration tests."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from calve.sink_core.config.table_maintenance import Expire
from calve.sink_core.iceberg.maintenance.expiry import plan_expiry
from tests.unit.iceberg.maintenance.build import loaded

TAG = "calve-p"
NOW = 1_000


def table(chain: dict[int, int | None], refs: dict[str, tuple[int, dict[str, Any]]]) -> TableMetadata:
    """Snapshots by id with their parents, committed at id × 10; refs with their settings."""
    empty = new_table_metadata(
        Schema(NestedField(1, "id", LongType())), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t"
    )
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": parent,
                "sequence-number": number,
                "timestamp-ms": number * 10,
                "manifest-list": f"file:///t/{number}",
            }
        )
        for number, parent in chain.items()
    ]
    made = {
        name: SnapshotRef(snapshot_id=at, snapshot_ref_type=_kind(name), **settings)
        for name, (at, settings) in refs.items()
    }
    return empty.model_copy(update={"snapshots": snapshots, "refs": made})


def _kind(name: str) -> SnapshotRefType:
    return SnapshotRefType.TAG if name.startswith("calve") or name == "v1" else SnapshotRefType.BRANCH


CHAIN: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 4}


def going(
    metadata: TableMetadata, *, age_ms: int = 0, retain_last: int = 1, keep_at_most: int | None = None
) -> set[int]:
    plan = plan_expiry(
        loaded(metadata), now_ms=NOW, older_than_ms=age_ms, retain_last=retain_last, keep_at_most=keep_at_most
    )
    return set(plan.going)


def test_the_head_and_the_tag_stay() -> None:
    assert going(table(CHAIN, {"main": (5, {}), TAG: (5, {})})) == {1, 2, 3, 4}
    assert going(table(CHAIN, {"main": (5, {}), TAG: (5, {})}), retain_last=3) == {1, 2}


def test_snapshots_between_tag_and_head_stay_whatever_their_age() -> None:
    metadata = table(CHAIN, {"main": (5, {}), TAG: (2, {})})
    plan = plan_expiry(loaded(metadata), now_ms=NOW, older_than_ms=0, retain_last=1)
    assert (plan.cutoff_ms, set(plan.going), plan.cut) == (30, {1}, ())


def test_of_two_pipelines_the_older_tag_counts() -> None:
    assert going(table(CHAIN, {"main": (5, {}), TAG: (4, {}), "calve-q": (2, {})})) == {1}


def test_young_snapshots_stay() -> None:
    assert going(table(CHAIN, {"main": (5, {}), TAG: (5, {})}), age_ms=NOW - 25) == {1, 2}
    assert going(table(CHAIN, {"main": (5, {}), TAG: (5, {})}), age_ms=NOW) == set()


def test_of_young_snapshots_so_many_stay_as_may_and_those_above_the_tag() -> None:
    everything_tagged = table(CHAIN, {"main": (5, {}), TAG: (5, {})})
    assert going(everything_tagged, age_ms=NOW, keep_at_most=2) == {1, 2, 3}
    assert going(everything_tagged, age_ms=NOW, keep_at_most=5) == set()
    assert going(everything_tagged, age_ms=NOW - 45, keep_at_most=4) == {1, 2, 3, 4}
    assert going(table(CHAIN, {"main": (5, {}), TAG: (2, {})}), age_ms=NOW, keep_at_most=1) == {1}
    assert going(table({}, {}), age_ms=NOW, keep_at_most=1) == set()


def test_snapshots_are_bounded_unless_the_file_says_otherwise() -> None:
    assert Expire().keep_at_most == 5_000
    assert Expire(keep_at_most=None).keep_at_most is None
    assert Expire(retain_last=9_000).retain_last == 9_000


def test_a_rolled_back_table_keeps_its_tag_but_not_what_lies_between() -> None:
    assert going(table(CHAIN, {"main": (2, {}), TAG: (5, {})})) == {1, 3, 4}


def test_other_tags_and_branches_stay() -> None:
    branched = {**CHAIN, 6: 1, 7: 6}
    metadata = table(branched, {"main": (5, {}), TAG: (5, {}), "audit": (7, {}), "v1": (3, {})})
    assert going(metadata) == {1, 2, 4, 6}


def test_a_branch_with_an_age_of_its_own_is_noticed() -> None:
    metadata = table(CHAIN, {"main": (5, {"max_ref_age_ms": None, "max_snapshot_age_ms": 1}), TAG: (2, {})})
    plan = plan_expiry(loaded(metadata), now_ms=NOW, older_than_ms=0, retain_last=1)
    assert plan.cut == (TAG,)


@pytest.mark.parametrize("refs", [{}, {"main": (5, {})}])
def test_a_table_without_a_tag_is_an_ordinary_table(refs: dict[str, tuple[int, dict[str, Any]]]) -> None:
    assert going(table(CHAIN, refs)) == ({1, 2, 3, 4, 5} if not refs else {1, 2, 3, 4})

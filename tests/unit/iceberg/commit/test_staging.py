"""Whether what was merged on a staging branch may become the head, and which branches nobody needs any more."""

from __future__ import annotations

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from calve.sink_core.iceberg.commit.staging import STAGING_MS, Call, Staging, left_behind, merged_in
from tests.unit.iceberg.maintenance.test_expiry import table

TAG, BRANCH = "calve-p", "calve-p-merge-1"
CHAIN: dict[int, int | None] = {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 2}


def at(**refs: int) -> TableMetadata:
    """`main`, `tag` and `branch` at these snapshots."""
    names = {"main": "main", "tag": TAG, "branch": BRANCH}
    kinds = {"tag": SnapshotRefType.TAG}
    made = {
        names[name]: SnapshotRef(snapshot_id=number, snapshot_ref_type=kinds.get(name, SnapshotRefType.BRANCH))
        for name, number in refs.items()
    }
    found = table(CHAIN, {})
    snapshots = [s.model_copy(update={"schema_id": 1 if s.snapshot_id == 6 else 0}) for s in found.snapshots]
    return found.model_copy(update={"refs": made, "snapshots": snapshots})


STAGED = Staging(BRANCH, 2, at(main=2, tag=1), Call((), ()))


@pytest.mark.parametrize(
    ("now", "found"),
    [
        pytest.param(at(main=2, tag=1, branch=3), 3, id="one snapshot on the head"),
        pytest.param(at(main=2, tag=1, branch=2), 2, id="nothing to change"),
        pytest.param(at(main=2, tag=1, branch=4), None, id="somebody else has been at the branch"),
        pytest.param(at(main=2, tag=1, branch=1), None, id="made on another head"),
        pytest.param(at(main=5, tag=1, branch=3), None, id="others have committed"),
        pytest.param(at(main=2, tag=2, branch=3), None, id="the tag has moved, and main was rolled back"),
        pytest.param(at(main=2, branch=3), None, id="the tag was removed"),
        pytest.param(at(main=2, tag=1, branch=6), None, id="merged by another schema"),
        pytest.param(at(main=2, tag=1), None, id="the branch was dropped"),
        pytest.param(at(main=2, tag=1, branch=9), None, id="its snapshot was expired"),
    ],
)
def test_a_merge_is_good_on_the_head_that_it_was_decided_on(now: TableMetadata, found: int | None) -> None:
    merged = merged_in(now, STAGED, TAG)
    assert (merged.snapshot_id if merged else None) == found


def test_only_staging_branches_of_a_day_ago_are_left_behind() -> None:
    others = {name: SnapshotRef(snapshot_id=1, snapshot_ref_type=SnapshotRefType.BRANCH) for name in ("audit", "main")}
    metadata = at(tag=1, branch=3)
    metadata = metadata.model_copy(update={"refs": {**metadata.refs, **others}})
    # Snapshots are committed at their id times 10.
    assert left_behind(metadata, 30 + STAGING_MS - 1) == []
    assert left_behind(metadata, 30 + STAGING_MS) == [BRANCH]

"""One attempt at a table: the snapshots that add published manifests, and may take data files out, as updates and
requirements. There is one for all appends; as sequence numbers order deletes among rows, a batch with deletes needs one
of its own.

pyiceberg's own transaction is not used: on a conflict it retries without its assertion, and it deletes the files of a
snapshot whose reply was lost. Here nothing is retried and nothing written for an attempt is ever deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
)

from calve.sink_core.errors import TableUnusable
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.catalog.clock import not_updated_past, time_for
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.plan import Attempt, Built, CommitPlan, Summarize
from calve.sink_core.iceberg.commit.relisting import asserted, relisted
from calve.sink_core.iceberg.commit.replace import paths_of
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.files.entries import live_entries, manifests_in
from calve.sink_core.iceberg.files.manifest_list import write_list
from calve.sink_core.iceberg.files.manifests import manifest_file, rewritten_name, write_without
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.shares import Step, gone_of, manifests_of
from calve.sink_core.timing import back_off

FOREVER_MS = 2**63 - 1
"""The tag's `max-ref-age-ms`: without it a table's `history.expire.max-ref-age-ms` could expire tag and snapshot."""


def appended(plan: CommitPlan, summarize: Summarize, tag: str) -> Built | None:
    """The plan as snapshots on top of the head; None if the head has been replaced and expired since it was loaded."""
    # Dead letters, which alone have `gone` and `kept`, are never deleted by key: they have one snapshot.
    steps = [
        Step([*manifests_of(share.events), *plan.kept], summarize(plan, share), [*gone_of(share.events), *plan.gone])
        for share in plan.shares or (plan.whole,)
    ]
    attempt, name = None, plan.view.table
    try:
        with unreachable_as_ours(f"writing the manifest list of {name}"):
            attempt = build_append(plan.table, steps, tag=tag, rules=plan.state.rules)
    except TableUnusable:
        now = load_if_there(plan.table.catalog, name)
        if now is not None and now.metadata.refs == plan.table.metadata.refs:
            raise
    reach("commit.after-list")
    if attempt is None:
        back_off(plan.conflicts)
        return None
    return Built(plan, attempt)


def build_append(
    table: Table, steps: Sequence[Step], *, tag: str, branch: str = MAIN_BRANCH, rules: Rules = ALL
) -> Attempt:
    """Snapshots on top of `branch` as loaded, one for each of `steps` (at least one), and the tag on the last.

    All data files that the `gone` of a step name must be in the head. Deletes that may not reach all rows are
    `relisted`; the table must have the spec for that.

    The requirements assert the table's UUID, the branch head and the tag's snapshot (or its absence): all that the
    check before this looked at; and the specs, where deletes rest on these. Writes the manifest lists, and again each
    manifest that names a file of a `gone` or such deletes.
    """
    metadata = table.metadata
    head, tagged = metadata.refs.get(branch), metadata.refs.get(tag)
    parent = metadata.snapshot_by_id(head.snapshot_id) if head else None
    requirements: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=metadata.table_uuid),)
    if rules.commit_asserts_the_head:
        requirements = (*requirements, at_ref(branch, parent.snapshot_id if parent else None))
    if metadata.snapshots and rules.commit_asserts_the_head:
        # pyiceberg refuses an assertion on any ref but main while a table has no snapshot; then the head says it all,
        # because whoever sets the tag moves the branch in the same call.
        requirements = (*requirements, at_ref(tag, tagged.snapshot_id if tagged else None))
    numbered = [
        (number, replace(step, manifests=[relisted(table, ref, number) for ref in step.manifests]))
        for number, step in enumerate(steps, metadata.next_sequence_number())
    ]
    requirements = (*requirements, *asserted(metadata, [ref for _, step in numbered for ref in step.manifests]))
    snapshots: list[Snapshot] = []
    for sequence_number, step in numbered:
        parent = new_snapshot(table, parent, step, sequence_number)
        snapshots.append(parent)
    last = snapshots[-1]
    requirements = (*requirements, not_updated_past(snapshots[0].timestamp_ms))
    updates = (
        *(AddSnapshotUpdate(snapshot=snapshot) for snapshot in snapshots),
        set_ref(branch, SnapshotRefType.BRANCH, last.snapshot_id),
        set_ref(tag, SnapshotRefType.TAG, last.snapshot_id, **{"max-ref-age-ms": FOREVER_MS}),
    )
    return Attempt(last.snapshot_id, last.summary.additional_properties if last.summary else {}, updates, requirements)


def new_snapshot(table: Table, parent: Snapshot | None, step: Step, sequence_number: int) -> Snapshot:
    """A snapshot of the table on top of `parent`, which no metadata has yet. Writes its manifest list."""
    snapshot_id = table.metadata.new_snapshot_id()
    return Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent.snapshot_id if parent else None,
            "sequence-number": sequence_number,
            "timestamp-ms": time_for(table.metadata),
            "manifest-list": _write_manifest_list(table, snapshot_id, parent, step, sequence_number),
            "summary": _summary(step, parent),
            "schema-id": table.metadata.current_schema_id,
        }
    )


def at_ref(ref: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """The assertion that a branch or tag is at a snapshot, or that there is none."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def set_ref(ref: str, kind: SnapshotRefType, snapshot_id: int, **more: int) -> SetSnapshotRefUpdate:
    """The update that puts a branch or tag at a snapshot; `more` in the words of Iceberg's REST protocol."""
    return SetSnapshotRefUpdate.model_validate({"ref-name": ref, "type": kind, "snapshot-id": snapshot_id, **more})


def _write_manifest_list(
    table: Table, snapshot_id: int, parent: Snapshot | None, step: Step, sequence_number: int
) -> str:
    there = manifests_in(table.io, parent)
    if step.gone:
        there = _without(table, snapshot_id, there, step.gone, sequence_number)
        reach("replay.after-manifests")
    path = table.location_provider().new_metadata_location(f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro")
    write_list(
        table.io.new_output(path),
        [*(manifest_file(ref, snapshot_id) for ref in step.manifests), *there],
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=sequence_number,
    )
    return path


def _without(
    table: Table, snapshot_id: int, there: Sequence[ManifestFile], gone: Sequence[ManifestRef], sequence_number: int
) -> list[ManifestFile]:
    """The manifests, those written again that name a file of `gone`. Their names say until when they are needed."""
    paths, specs, left = paths_of(table.io, gone), {ref.spec_id for ref in gone}, list[ManifestFile]()
    for manifest in there:
        mine = manifest.content is ManifestContent.DATA and manifest.partition_spec_id in specs
        if mine and not paths.isdisjoint(e.data_file.file_path for e in live_entries(table.io, manifest)):
            name = rewritten_name(sequence_number)
            path = table.location_provider().new_metadata_location(name)
            manifest = write_without(table.io, table.metadata, manifest, paths, snapshot_id, path)
        left.append(manifest)
    return left


def _summary(step: Step, parent: Snapshot | None) -> Summary:
    data = [m for m in step.manifests if not m.deletes]
    deletes, gone = [m for m in step.manifests if m.deletes], step.gone
    counts = {
        "added-data-files": str(sum(m.files for m in data)),
        "added-records": str(sum(m.rows for m in data)),
        "added-files-size": str(sum(m.data_bytes for m in step.manifests)),
    }
    if deletes:
        files, keys = str(sum(m.files for m in deletes)), str(sum(m.rows for m in deletes))
        counts |= {"added-delete-files": files, "added-equality-delete-files": files, "added-equality-deletes": keys}
    if gone:
        counts |= {
            "deleted-data-files": str(sum(m.files for m in gone)),
            "deleted-records": str(sum(m.rows for m in gone)),
            "removed-files-size": str(sum(m.data_bytes for m in gone)),
        }
    operation = Operation.OVERWRITE if gone or deletes else Operation.APPEND
    if deletes and not data:
        operation = Operation.DELETE
    previous = parent.summary.additional_properties if parent and parent.summary else None
    summary = update_snapshot_summaries(Summary(operation=operation, **counts, **step.summary), previous)
    # pyiceberg adds up the totals of the other operations only.
    return Summary(operation=Operation.REPLACE, **summary.additional_properties) if step.replaces else summary

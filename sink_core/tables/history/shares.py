"""Which events go into which snapshots of ours, and what these say by them. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from calve.sink_core.control.events import Logged
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SnapshotRecord
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState

Events = Sequence[Logged[DataWritten]]


@dataclass(frozen=True, slots=True)
class Share:
    """Events of one snapshot, the control offset (exclusive) that it stores, and the last event below that."""

    events: Events
    stored_offset: int
    last_event_id: str


@dataclass(frozen=True, slots=True)
class Step:
    """One snapshot: the manifests it adds, what it says of itself, and manifests that name data files which leave the
    table by it. `replaces`: it changes no row, and nobody may take it for an append of its own.
    """

    manifests: Sequence[ManifestRef]
    summary: Mapping[str, str]
    gone: Sequence[ManifestRef] = ()
    replaces: bool = False


def manifests_of(events: Events) -> list[ManifestRef]:
    """The manifests that a commit of the events adds, in their order."""
    return [manifest for logged in events for manifest in logged.event.added]


def gone_of(events: Events) -> list[ManifestRef]:
    """Manifests that name the data files which a commit of the events takes out."""
    return [manifest for logged in events if logged.event.replaces for manifest in logged.event.replaces.gone]


def shares_of(events: Events, stored_offset: int, last_event_id: str) -> list[Share]:
    """One snapshot for all; but a new one before each batch with deletes, so that these are for what came before it and
    not for what comes with it. It then ends just before the next one's first event.
    """
    groups: list[list[Logged[DataWritten]]] = [[]]
    for logged in events:
        if logged.event.deletes and groups[-1]:
            groups.append([])
        groups[-1].append(logged)
    shares = [Share(one, following[0].offset, one[-1].event.event_id) for one, following in pairwise(groups)]
    return [*shares, Share(groups[-1], stored_offset, last_event_id)]


def record_of_snapshot(
    events: Events,
    *,
    stored_offset: int,
    last_event_id: str,
    given_up: tuple[tuple[int, int], ...],
    view: TableView,
    state: CommitState,
    now: Identity,
    from_now: bool,
    removed: Mapping[str, int] | None = None,
) -> SnapshotRecord:
    """Under a commit id of its own; `given_up` as in `SnapshotRecord`. `removed` are rows that left, by range job.

    `from_now`: the table need not have what was published without it.
    """
    counts: dict[str, int] = {}
    for logged in events:
        counts[logged.event.batch_id] = counts.get(logged.event.batch_id, 0) + logged.event.rows
    replaced = {e.event.batch_id: e.event.replaces.rows for e in events if e.event.replaces}
    return SnapshotRecord(
        stored_offset=stored_offset,
        commit_id=str(uuid.uuid4()),
        valid_through_ms=_valid_through_ms(view, state, stored_offset, from_now=from_now),
        batches=tuple(counts),
        counts=counts,
        last_event_id=last_event_id,
        control_topic_id=now.control_topic_id,
        cluster_id=now.cluster_id,
        given_up=given_up,
        replaced={**replaced, **(removed or {})},
    )


def _valid_through_ms(view: TableView, state: CommitState, stored_offset: int, *, from_now: bool) -> int | None:
    """VTTS: what the table said before, or more where no batch that was published without it is still to be read again.

    After a rebuild the log may know less than the table said.
    """
    said = view.latest.valid_through_ms if view.latest else None
    if state.rules.vtts_waits_for_the_history and not from_now and state.unfed_batches(view.table, stored_offset):
        return said
    return max((ms for ms in (said, state.valid_through_ms(stored_offset)) if ms is not None), default=None)

"""The proof of a mirror: that each source offset was copied once, in order, and, if asked for, that both clusters have
the same records still.

The chain needs the control log and the group alone. The deep proof reads the remote topics, and what retention has left
of the source, and holds each range's number and digest against its event's: so the target is proven after the source
has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from calve.sink_core.control import checks
from calve.sink_core.control.slots.proof import PartitionProof, Proof
from calve.sink_core.errors import CalveError
from calve.sink_core.finding import NotChecked
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.reader import RangeReader
from calve.sink_core.kafka.recount import compacted
from calve.sink_core.kafka.source import end_offsets, log_starts
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.carried import carried
from calve.sink_core.mirror.digest import Digest
from calve.sink_core.mirror.events import CopiedRange
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.offsets import OffsetRange, Offsets, TopicPartition
from calve.sink_core.tasks import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProof(PartitionProof):
    """Of one partition of a remote topic. `position` is the next source offset.

    `checked` and `source_checked` count records that were read again, `expired` those that retention or compaction may
    have taken.
    """

    position: int
    checked: int = 0
    source_checked: int = 0
    expired: int = 0

    @property
    def known(self) -> Mapping[str, int]:
        return {"records": self.records, "next source offset": self.position}

    @property
    def counted(self) -> Mapping[str, int]:
        return {
            "records read on target": self.checked,
            "records read on source": self.source_checked,
            "records expired": self.expired,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorProof(Proof[CopyProof]):
    """The proof of a mirror. `moves` say who has set positions by hand."""

    moves: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def notes(self) -> list[str]:
        return [f"positions were set by {move}" for move in self.moves]

    @property
    def how(self) -> str:
        if self.deep:
            return "by the records of both clusters"
        return "by control topic and positions; --deep reads the records"

    @property
    def total(self) -> Mapping[str, int]:
        return {"records": self.records}

    def to_json(self) -> dict[str, Any]:
        # Not by `super()`: a class with slots is made anew, and the function still knows the old one.
        return {**Proof.to_json(self), "positions_set": self.moves}


@dataclass(frozen=True, slots=True)
class _Side:
    """One cluster's ranges of one partition: each is to hold what its event says. Offsets are the cluster's own.

    Up to `end` there is to be nothing else between and behind them; -1 where others may have written, as to the source.
    """

    settings: clients.Settings = field(repr=False)
    at: TopicPartition
    ranges: tuple[tuple[OffsetRange, CopiedRange], ...]
    end: int


def verify(
    plane: MirrorPlane, *, deep: bool = False, on_progress: Callable[[str], None] = lambda _step: None
) -> MirrorProof:
    """What can be proven now of everything that the log speaks of.

    Raises Unreachable if a cluster does not answer, FindingError for what contradicts the control topic.
    """
    if not plane.has_run():
        return MirrorProof(partitions=(), faults=(), deep=deep, moves=(), ran=False)
    # Before the log: what is committed by now has its event there.
    ends = _target_ends(plane) if deep else {}
    state = plane.log.refresh_to_end()
    moves = tuple(f"{each.event.by}: {each.event.reason}, at control offset {each.offset}" for each in state.moves)
    faults = list(state.breaks)
    if (moved := checks.moved(state.partitions, plane.group.positions(state.partitions))) is not None:
        # A slot may have moved them since the log was read.
        state = plane.log.refresh_to_end()
        moved = checks.moved(state.partitions, plane.group.positions(state.partitions))
        faults += [f"{moved.name}: stored {moved.stored}, found {moved.found}"] if moved else []
    proofs = [
        CopyProof(at=at, records=state.records.get(at, 0), position=position)
        for at, position in sorted(state.partitions.items())
    ]
    if deep:
        on_progress("reading remote topics and the source")
        proofs = _deep(plane, proofs, ends)
    return MirrorProof(
        partitions=tuple(proofs),
        moves=moves,
        faults=tuple(faults),
        deep=deep,
        not_checked=(*_left_out(plane), *_standing(plane)),
    )


def _left_out(plane: MirrorPlane) -> list[NotChecked]:
    """Topics that are not copied; that the source does not answer, if it doesn't: nothing else rests on it."""
    try:
        return [NotChecked(topic, why) for topic, why in topics.left_out(plane).items()]
    except CalveError as error:
        return [NotChecked(plane.pipeline.config.source_alias, f"topics that are not copied: {error.message}")]


def _standing(plane: MirrorPlane) -> Iterator[NotChecked]:
    for remote, event in plane.log.state.refusals.items():
        yield NotChecked(plane.pipeline.source_of(remote) or remote, f"stands still: {event.why}")


def _target_ends(plane: MirrorPlane) -> Offsets:
    partitions = plane.log.refresh().partitions
    return end_offsets(plane.admin, partitions, timeout_s=ADMIN_TIMEOUT_S)


def _deep(plane: MirrorPlane, proofs: Sequence[CopyProof], ends: Offsets) -> list[CopyProof]:
    target = list(_sides_of_target(plane, proofs, ends))
    source = list(_sides_of_source(plane, proofs))
    sides = [*(side for side, _ in target), *(side for side, _ in source)]
    records = sum(part.span for side in sides for part, _ in side.ranges)
    job = Job(plane.pipeline.group, "verify", f"{plane.pipeline.group}: verify, {records:,} records")
    found = plane.tasks.run(partial(_prove, tuple(sides), plane.pipeline.group), len(sides), records=records, job=job)
    done: list[CopyProof] = []
    for number, proof in enumerate(proofs):
        (checked, wrong), (source_checked, source_wrong) = found[number], found[len(proofs) + number]
        done.append(
            replace(
                proof,
                checked=checked,
                source_checked=source_checked,
                expired=target[number][1],
                faults=(*wrong, *(f"source: {each}" for each in source_wrong)),
            )
        )
    return done


def _sides_of_target(plane: MirrorPlane, proofs: Sequence[CopyProof], ends: Offsets) -> Iterator[tuple[_Side, int]]:
    """With the number of records that are no longer there to be read."""
    copied, partitions = plane.log.state.copied, [proof.at for proof in proofs]
    starts = log_starts(plane.admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
    thinned = compacted(plane.admin, {at.topic for at in partitions}, timeout_s=ADMIN_TIMEOUT_S)
    for at in partitions:
        ranges = [
            (OffsetRange(*at, part.first, part.last), part)
            for part in copied.get(at, ())
            if part.records and part.first >= starts[at] and at.topic not in thinned
        ]
        expired = plane.log.state.records.get(at, 0) - sum(part.records for _, part in ranges)
        yield _Side(plane.pipeline.kafka.properties, at, tuple(ranges), ends.get(at, -1)), expired


def _sides_of_source(plane: MirrorPlane, proofs: Sequence[CopyProof]) -> Iterator[tuple[_Side, int]]:
    named = {proof.at: plane.pipeline.source_of(proof.at.topic) for proof in proofs}
    there = plane.source_admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    at_source = {
        at: TopicPartition(topic, at.partition)
        for at, topic in named.items()
        if topic in there and at.partition in there[topic].partitions
    }
    starts = log_starts(plane.source_admin, at_source.values(), timeout_s=ADMIN_TIMEOUT_S)
    ends = end_offsets(plane.source_admin, at_source.values(), timeout_s=ADMIN_TIMEOUT_S)
    thinned = compacted(plane.source_admin, {at.topic for at in starts}, timeout_s=ADMIN_TIMEOUT_S)
    for proof in proofs:
        source = at_source.get(proof.at, proof.at)
        parts = plane.log.state.copied.get(proof.at, ()) if source in starts and source.topic not in thinned else ()
        ranges = [
            (OffsetRange(*source, part.start, part.end), part)
            for part in parts
            if part.records and part.start >= starts[source] and part.end <= ends[source]
        ]
        yield _Side(plane.pipeline.source.properties, source, tuple(ranges), -1), 0


def _prove(sides: Sequence[_Side], group: str, number: int) -> tuple[int, tuple[str, ...]]:
    """How many records were read again, and what is wrong with them."""
    side = sides[number]
    if not side.ranges:
        return 0, ()
    starts = np.array([part.start for part, _ in side.ranges], np.int64)
    ends = np.array([part.end for part, _ in side.ranges], np.int64)
    digests, counts = [Digest() for _ in side.ranges], np.zeros(len(starts) + 1, np.int64)
    whole = OffsetRange(*side.at, int(starts[0]), max(side.end, int(ends[-1])))
    with RangeReader(side.settings, [whole], group=group) as reader:
        for messages in reader:
            # That of the first range that ends behind it; if the record lies before that range, of none.
            of = ends.searchsorted(messages.offsets, side="right")
            inside = np.flatnonzero(of < len(starts))
            of[inside[messages.offsets[inside] < starts[of[inside]]]] = len(starts)
            np.add.at(counts, of, 1)
            for index in np.unique(of[of < len(starts)]).tolist():
                sent = carried(messages.at(np.flatnonzero(of == index)), lambda *_: None)
                digests[index].add(sent.keys, sent.values, sent.timestamps_ms, sent.headers)
    wrong = [
        f"{part}: {event.records:,} records with digest {event.digest:08x} were copied, "
        f"{int(count):,} with {digest.value:08x} are there"
        for (part, event), digest, count in zip(side.ranges, digests, counts[:-1], strict=True)
        if (count, digest.value) != (event.records, event.digest)
    ]
    if counts[-1] and side.end >= 0:
        wrong.append(f"{whole}: {int(counts[-1]):,} records that this mirror did not copy")
    return int(counts[:-1].sum()), tuple(wrong)

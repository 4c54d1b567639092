"""The proof of a source: each source offset went on where the one before ended, and is the one in the offsets topic; if
asked for, the topics have all that was sent.

The system that is read is not asked for rows: what it has let go of can't be read again. Counted are the records that
each transaction has sent, by the offsets that they got. What the source never saw is in none of them: the proof says of
each way to read what that may be, and names what is blocked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyroaring import BitMap64

from calve.sink_core.config.references import redact_text
from calve.sink_core.config.source_systems import DatabaseSource, FilesSource, PostgresLog, SourceSystem
from calve.sink_core.control.slots.proof import PartitionProof, Proof
from calve.sink_core.errors import CalveError
from calve.sink_core.finding import NotChecked
from calve.sink_core.findings import SOURCE_OFFSET_MOVED
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.recount import compacted, delivered_offsets
from calve.sink_core.kafka.source import end_offsets, existing_topic_ids, high_watermarks, log_starts
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.source.base import Stored
from calve.sink_core.source.events import Written
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.state import SourceState
from calve.sink_core.wording import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SentProof(PartitionProof):
    """Of one partition of a topic; `records` are those that the log tells were sent to it.

    `checked` were found, `expired` may have been taken by retention, compaction or whoever deleted the topic. `others`
    are records from the first checked one on that this source did not send.
    """

    checked: int = 0
    expired: int = 0
    others: int = 0

    @property
    def counted(self) -> Mapping[str, int]:
        return {
            "records read": self.checked,
            "records expired": self.expired,
            "records of others": self.others,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProof(Proof[SentProof]):
    """The proof of a source. `records` are all that were ever sent, dead letters left out; `source_partitions` have an
    offset.
    """

    records: int
    source_partitions: int

    @property
    def notes(self) -> list[str]:
        others = sum(each.others for each in self.partitions)
        return [f"{counted(others, 'record', 'records')} in these topics are not of this source"] if others else []

    @property
    def how(self) -> str:
        if self.deep:
            return "by the records of the topics"
        return "by control topic and source offsets; --deep counts the records"

    @property
    def total(self) -> Mapping[str, int]:
        return {"records": self.records, "source partitions": self.source_partitions}


def verify(
    plane: SourcePlane, *, deep: bool = False, on_progress: Callable[[str], None] = lambda _step: None
) -> SourceProof:
    """What can be proven now of everything that the log speaks of.

    Raises Unreachable if the cluster does not answer or a transaction stays open, FindingError for what contradicts the
    control topic.
    """
    if not plane.has_run():
        return SourceProof(partitions=(), faults=(), deep=deep, records=0, source_partitions=0, ran=False)
    # Before the log: what is committed by now has its event there.
    ends = end_offsets(plane.admin, _there(plane, plane.log.refresh()), timeout_s=ADMIN_TIMEOUT_S) if deep else {}
    moved = _moved(plane)
    state = plane.log.state
    partitions = [
        SentProof(at=at, records=sum(each.records for each in written)) for at, written in sorted(state.written.items())
    ]
    if deep:
        partitions = _deep(plane, state, partitions, ends, on_progress)
    return SourceProof(
        records=state.records,
        source_partitions=len(state.offsets),
        partitions=tuple(partitions),
        faults=(*state.breaks, *moved),
        deep=deep,
        not_checked=(*_never_seen(plane.pipeline.config.source), *_blocked(plane)),
    )


_BY_QUERY = {
    "transaction": "rows that were deleted",
    "timestamp": "rows that were deleted, that took a longer transaction than `settle`, or whose time is null or late",
    "incrementing": "rows that were changed or deleted, or that took a longer transaction than `settle`",
    "bulk": "rows that were deleted, and values that came and went between two reads",
}


def _never_seen(system: SourceSystem) -> Iterator[NotChecked]:
    """What this way to read a system can't see."""
    match system:
        case DatabaseSource(log=None):
            for each in system.tables:
                yield NotChecked(each.table, f"by: {each.by} does not see {_BY_QUERY[each.by]}")
        case DatabaseSource(log=PostgresLog(publication=name)):
            yield NotChecked(f"publication {name}", "what is written to a table or schema while it is not in it")
        case FilesSource():
            path = redact_text(system.files.path)
            yield NotChecked(path, "files that were replaced, shortened or deleted before they were read to their end")
        case _:
            yield NotChecked(system.title, "what the class has not given: only what was sent is counted")


def _blocked(plane: SourcePlane) -> list[NotChecked]:
    """What the source names that it can't read for now; that it does not answer, if it doesn't."""
    try:
        blockers = plane.source.waiting(plane.log.state.offsets).blockers
    except CalveError as error:
        return [NotChecked(plane.pipeline.reads, f"what is blocked there: {error.message}")]
    return [NotChecked(each.where, each.why) for each in blockers]


def _moved(plane: SourcePlane) -> list[str]:
    """Offsets of the offsets topic that are not the log's, with both values."""
    if plane.pipeline.config.connect is not None:
        # Kafka Connect moves them too, and the log is told by the next generation.
        plane.log.refresh_to_end()
        return []
    found = _differing(plane)
    if found:
        # A slot may have moved some between the two looks: then they are others now.
        again = _differing(plane)
        found = {partition: both for partition, both in found.items() if again.get(partition) == both}
    name = SOURCE_OFFSET_MOVED.name
    return [f"{name}: {at.json}: stored {logged}, found {stored}" for at, (logged, stored) in sorted(found.items())]


def _differing(plane: SourcePlane) -> dict[FlatMap, tuple[str, str]]:
    topic = plane.offsets
    stored: Stored = (
        topic.refresh() if existing_topic_ids(plane.admin, [topic.topic], timeout_s=ADMIN_TIMEOUT_S) else {}
    )
    # What the log does not know was there before the first run.
    logged = plane.log.refresh_to_end().offsets
    return {at: (each.json, _text(stored.get(at))) for at, each in logged.items() if each != stored.get(at)}


def _text(offset: FlatMap | None) -> str:
    return offset.json if offset is not None else "none"


def _there(plane: SourcePlane, state: SourceState) -> list[TopicPartition]:
    """The partitions that the log speaks of, of topics that are still those that were written."""
    topics = {at.topic for at in state.written}
    ids = existing_topic_ids(plane.admin, topics, timeout_s=ADMIN_TIMEOUT_S)
    return sorted(at for at in state.written if ids.get(at.topic, "") == state.topic_ids.get(at.topic))


def _deep(
    plane: SourcePlane,
    state: SourceState,
    proofs: list[SentProof],
    ends: dict[TopicPartition, int],
    on_progress: Callable[[str], None],
) -> list[SentProof]:
    there = _there(plane, state)
    thinned = compacted(plane.admin, {at.topic for at in there}, timeout_s=ADMIN_TIMEOUT_S)
    there = [at for at in there if at.topic not in thinned]
    starts = log_starts(plane.admin, there, timeout_s=ADMIN_TIMEOUT_S)
    now = high_watermarks(plane.admin, there, timeout_s=ADMIN_TIMEOUT_S)
    retained = {at: [each for each in state.written[at] if each.first >= starts[at]] for at in there}
    # A topic that ends before what was sent has lost it: what is left is counted.
    ranges = [
        OffsetRange(*at, runs[0].first, min(now[at], max(ends.get(at, 0), *(each.end for each in runs))))
        for at, runs in retained.items()
        if runs and runs[0].first < now[at]
    ]
    found = delivered_offsets(plane.pipeline.kafka.properties, ranges, on_progress)
    for part in ranges:
        if part.at not in found:
            # Retention was faster than the reader.
            retained[part.at] = []
    return [_counted(proof, retained.get(proof.at, []), found.get(proof.at, BitMap64())) for proof in proofs]


def _counted(proof: SentProof, runs: list[Written], found: BitMap64) -> SentProof:
    """`runs` are those of the partition that are to be there, `found` the offsets that are, from the first run on."""
    sent, there = sum(each.records for each in runs), len(found)
    counts = [(each, found.range_cardinality(each.first, each.end)) for each in runs]
    wrong = [
        f"[{run.first}, {run.end}): {run.records:,} records were sent, {count:,} are there"
        for run, count in counts
        if count < run.records
    ]
    if there < sent and not wrong:
        # The runs of several slots overlap.
        wrong = [f"{sent:,} records were sent, {there:,} are there"]
    return replace(
        proof,
        checked=min(sent, there),
        expired=proof.records - sent,
        others=max(0, there - sent),
        faults=tuple(wrong),
    )

"""One batch of a mirror: a generation of slots, from looking at both clusters to what its slots have committed.

look → record, fence, read positions → plan → slots → the log says what they did

A topic that can't be copied as it is stands still until the run ends: its positions stay where its last transaction
left them, the one that was refused counts for nothing, and the next generation copies the others. Only where no other
topic is left the run stops. A topic or partition of the source that gives no answer is in no generation. Crash points,
and what the next run finds:

    copy.after-refused  nothing of it in the log; the topic is tried again, and refused again
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from calve.sink_core.config.mirror import StartAtMirror
from calve.sink_core.control import checks
from calve.sink_core.control.rounds import OnProgress
from calve.sink_core.control.shares import Limits, Shares, shared
from calve.sink_core.control.slots.leading import Led, Wanted
from calve.sink_core.control.slots.run import Assignment, SlotBatch, SlotMover
from calve.sink_core.control.slots.slot import unexplained
from calve.sink_core.control.starting import start_offsets
from calve.sink_core.control.status import Blocker
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import Silent, bytes_per_record, end_offsets, sample
from calve.sink_core.mirror import fail_back, topics
from calve.sink_core.mirror.copy import CopyResult, CopySpec, copy_slot
from calve.sink_core.mirror.cycle import check_no_cycle
from calve.sink_core.mirror.events import CopiedRange, TopicRefused
from calve.sink_core.mirror.plan import Ranges, by_slot, spans
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.refused import Refusal
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.mirror.topic_config import topic_configs
from calve.sink_core.mirror.topics import Seen
from calve.sink_core.offsets import Offsets, TopicPartition

_SAMPLE_RECORDS = 200
_LARGEST_BATCH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport(SlotBatch):
    """One generation: `ranges` are what its slots committed, `refusals` of topics that stand still from here on."""

    ranges: tuple[CopiedRange, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def given_up(self) -> bool:
        """One that found out which topics stand still leaves to the next what the others of these slots have."""
        return bool(self.refusals)

    @property
    def records(self) -> int:
        return sum(part.records for part in self.ranges)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.ranges)

    @property
    def offsets(self) -> int:
        return sum(part.end - part.start for part in self.ranges)

    @property
    def adjusted(self) -> int:
        return sum(part.adjusted for part in self.ranges)

    @property
    def besides(self) -> Mapping[str, int]:
        return {"adjusted": self.adjusted}


class Copier(SlotMover[MirrorPlane, MirrorState, CopyReport, CopyResult]):
    """Makes the batches of one mirror."""

    def __init__(self, plane: MirrorPlane, *, on_progress: OnProgress | None = None) -> None:
        super().__init__(plane, on_progress=on_progress)
        self._config = plane.pipeline.config
        self._until: dict[TopicPartition, int] | None = None
        self._sampled: dict[str, float] = {}
        self._synced = False
        self._refusals = dict[str, Refusal]()
        self._seen: Seen | None = None
        self._planned: Seen | None = None

    @property
    def blockers(self) -> Sequence[Blocker]:
        """What `topics.blockers` says of the topics at the last look."""
        return topics.blockers(self._plane, self._seen) if self._seen is not None else ()

    def look(self) -> int:
        """How many offsets are pending, by the log; reads it on."""
        self._plane.log.refresh()
        self.lag = self._lag(self._look().without(self._refusals))
        return self.lag

    def go_on(self) -> None:
        """Have the next batch read what is pending now."""
        self._until = None

    def next_batch(self) -> CopyReport | None:
        seconds = dict[str, float]()
        begun = time.monotonic()
        self._plane.log.refresh()
        if self.paused:
            return None
        seen = self._look()
        self._say_silent(seen)
        if not self._synced:
            self._stand(topics.sync_configs(self._plane, seen))
            self._synced = True
        if self._until is None:
            self._until = dict(seen.ends)
        seen = self._going_on(seen).up_to(self._until)
        self.lag = self._lag(seen)
        if not self.lag and self._stands_at_the_end(seen):
            self._lift(seen)
            return None
        self._plane.tasks.begin_start(self.lag)
        self._check_no_cycle(seen)
        remote = topics.ensure_remote(self._plane, seen)
        if remote.refusals:
            self._stand(remote.refusals)
            return self.next_batch()
        led = self._plane.leader.lead(partial(self._wanted, seen, remote.topic_ids))
        if led is None:
            return CopyReport(lag_after=self.lag, seconds=seconds, overtaken=True)
        self._planned = seen
        done = self._generation(led, begun, seconds)
        if done.failed is None and not done.overtaken:
            done.failed = unexplained(done.results)
        self.lag = self._lag(seen.without(self._refusals))
        return CopyReport(
            batch_id=led.generation,
            ranges=tuple(done.state.of_generation()) if not done.overtaken else (),
            slots=done.slots,
            lag_after=self.lag,
            seconds=seconds,
            overtaken=done.overtaken,
            failed=done.failed,
            written_by=done.written_by,
            refusals=tuple({each.at.topic: each for result in done.results for each in result.refusals}.values()),
        )

    def _look(self) -> Seen:
        """The source as it is: at first use all that is named has to answer, as nobody could tell later where one
        begins that did not.
        """
        before = self._seen.silent if self._seen is not None else Silent()
        self._seen = topics.look(self._plane, before if self._plane.log.state.last_batch_id else None)
        return self._seen

    def _say_silent(self, seen: Seen) -> None:
        """Have the log say what gives no answer, by one of each topic, for since when."""
        partitions = [(at, error) for at, error in sorted(seen.silent.partitions.items(), reverse=True)]
        first = {at.topic: Refusal(at, -1, error) for at, error in partitions}
        for refusal in (*first.values(), *(Refusal.of_topic(*each) for each in seen.silent.topics.items())):
            if self._plane.pipeline.remote_of(refusal.at.topic) not in self._plane.log.state.refusals:
                self._refuse(refusal)

    def _going_on(self, seen: Seen) -> Seen:
        """Without topics that stand still. Raises the error of one if there is no other topic."""
        others = seen.without(self._refusals)
        for refusal in self._refusals.values() if not others.topics else ():
            raise refusal.error
        return others

    def _stand(self, refusals: Iterable[Refusal]) -> None:
        """Leave topics out from here on, and have the log say so, once for each reason."""
        for refusal in refusals:
            self._refusals[refusal.at.topic] = refusal
            self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        event = TopicRefused(
            pipeline_id=self._plane.pipeline_id,
            topic=self._plane.pipeline.remote_of(refusal.at.topic),
            partition=refusal.at.partition,
            offset=refusal.offset,
            code=refusal.error.code,
            why=refusal.error.message,
            hint=refusal.error.hint,
        )
        before = self._plane.log.state.refusals.get(event.topic)
        if before is None or not event.repeats(before):
            reach("copy.after-refused")
            self._tell(event)

    def _lift(self, seen: Seen) -> None:
        """Have the log say of topics that nothing is in their way any more, where no copied range can."""
        silent = {at.topic for at in seen.silent.partitions} | seen.silent.topics.keys()
        remotes = {self._plane.pipeline.remote_of(topic) for topic in seen.topics.keys() - silent}
        for remote, event in list(self._plane.log.state.refusals.items()):
            if remote in remotes and event.offset < 0:
                self._tell(replace(event, event_id=str(uuid.uuid4()), why="", hint=""))

    def _tell(self, event: TopicRefused) -> None:
        self._plane.log.append(event)
        self._plane.log.refresh()

    def _check_no_cycle(self, seen: Seen) -> None:
        """Of topics that are copied for the first time: of two mirrors the one that comes second is refused."""
        pipeline, known = self._plane.pipeline, self._plane.log.state.upstream_ids
        if not known and isinstance(self._config.source.start, StartAtMirror):
            # It asks the mirror that came the other way itself, which must be paused.
            return
        if fresh := [topic for topic in seen.topics if topic not in known]:
            check_no_cycle(pipeline, self._plane.source_admin, self._plane.cluster_id, fresh)

    def _assignment(self, led: Led[MirrorState]) -> Assignment[CopyResult] | None:
        seen = self._planned
        assert seen is not None
        shares = self._shares(led, seen)
        self._keep_positions(led)
        if shares is None:
            return None
        # Never more than were recorded: the next generation fences so many.
        given = by_slot(shares, min(led.slots, self.slots(spans([shares.ranges]))))
        if not given:
            return None
        offsets = spans(given)
        where = f"{len(given)} slots" if len(given) > 1 else "one slot"
        return Assignment(
            task=partial(copy_slot, self._spec(led.generation, given, seen)),
            tasks=self._plane.tasks,
            slots=len(given),
            records=offsets,
            message=f"copying {offsets:,} offsets by {where}",
            description=f"{offsets:,} offsets",
        )

    def _concluded(self, results: Sequence[CopyResult]) -> str:
        self._stand(each for result in results for each in result.refusals)
        return ""

    def _shares(self, led: Led[MirrorState], seen: Seen) -> Shares | None:
        """What the generation copies. Raises FindingError for positions that contradict log or source."""
        remote = seen.remote
        wanted = {r: led.state.partitions[r] for r in remote.values() if r in led.state.partitions}
        topics.stop_on(self._plane, checks.moved(wanted, led.positions))
        found = {at: led.positions[remote[at]] for at in seen.ends if remote[at] in led.positions}
        real_ends = seen.real_ends
        if any(position.offset > real_ends[at] for at, position in found.items()):
            # Another driver may have copied what came after the look.
            real_ends = end_offsets(self._plane.source_admin, real_ends, timeout_s=ADMIN_TIMEOUT_S)
        topics.stop_on(self._plane, checks.against_log(found, seen.starts, real_ends))
        return self.next_of(seen, {at: position.offset for at, position in found.items()})

    def next_of(self, seen: Seen, starts: Offsets) -> Shares | None:
        """The next share of each partition from these positions on."""
        ends = {at: max(seen.ends[at], start) for at, start in starts.items()}
        batch = self._config.batch
        limits = Limits(batch.max_records, batch.max_bytes, max(1, len(starts)), batch.min_task_bytes)
        return shared(starts=starts, ends=ends, bytes_per_record=self._bytes_per_record(seen, starts), limits=limits)

    def _wanted(self, seen: Seen, remote_ids: Mapping[str, str], state: MirrorState) -> Wanted:
        remote = seen.remote
        return Wanted(
            pipeline_id=self._plane.pipeline_id,
            # No more ids than can have work: the next generations fence each of them.
            slots=min(self.slots(self.lag), max(1, self._pending_partitions(seen, state))),
            topic_ids=remote_ids,
            upstream_ids=seen.topic_ids,
            starts={remote[at]: offset for at, offset in self.starts(seen, state).items()},
        )

    def starts(self, seen: Seen, state: MirrorState) -> Offsets:
        """Of partitions that the log does not know: by the file at first use, later their log start."""
        remote = seen.remote
        new = [at for at in seen.ends if remote[at] not in state.partitions]
        if state.last_batch_id or not new:
            return {at: seen.starts[at] for at in new}
        start = self._config.source.start
        if isinstance(start, StartAtMirror):
            behind = fail_back.behind(self._plane, start.mirror, seen)
            return {at: behind[at] for at in new}
        return start_offsets(
            start,
            log_starts=seen.starts,
            ends=seen.ends,
            admin=self._plane.source_admin,
            settings=self._plane.pipeline.source.properties,
        )

    def slots(self, offsets: int) -> int:
        """How many slots work of that size may use."""
        return max(1, self._plane.tasks.parallelism(offsets))

    def _spec(self, generation: str, given: list[Ranges], seen: Seen) -> CopySpec:
        pipeline, limits = self._plane.pipeline, self._config.transaction
        names = {part.topic for ranges in given for part in ranges}
        remotes = {name: pipeline.remote_of(name) for name in names}
        largest = min(config.largest_batch for config in topic_configs(self._plane.admin, remotes.values()).values())
        batch = {"batch.size": min(_LARGEST_BATCH, largest)}
        slots = (self._plane.slot_spec(number, generation) for number in range(len(given)))
        return CopySpec(
            pipeline_id=self._plane.pipeline_id,
            source=pipeline.source.properties,
            reader_group=pipeline.group,
            slots=tuple(replace(slot, producer={**slot.producer, **batch}) for slot in slots),
            ranges=tuple(given),
            remotes=remotes,
            topic_ids={name: seen.topic_ids[name] for name in names},
            max_bytes=limits.max_bytes,
            max_duration_s=limits.max_duration,
            adjusts=self._config.on_uncarriable == "adjust",
        )

    def _lag(self, seen: Seen) -> int:
        return sum(self._lags(seen, self._plane.log.state).values())

    def _lags(self, seen: Seen, state: MirrorState) -> dict[TopicPartition, int]:
        """By source partition how many offsets are pending; of one without position all that there are."""
        remote = seen.remote
        begun = {at: state.partitions.get(remote[at], seen.starts[at]) for at in seen.ends}
        return {at: max(0, end - begun[at]) for at, end in seen.ends.items()}

    def _pending_partitions(self, seen: Seen, state: MirrorState) -> int:
        return sum(lag > 0 for lag in self._lags(seen, state).values())

    def _stands_at_the_end(self, seen: Seen) -> bool:
        """Whether every partition has a position by the log, and none lies beyond what is there: that is a finding."""
        known = self._plane.log.state.partitions
        remote = seen.remote
        return all(remote[at] in known and known[remote[at]] <= end for at, end in seen.real_ends.items())

    def _bytes_per_record(self, seen: Seen, starts: Offsets) -> dict[str, float]:
        """Per topic that has a lag: from what was copied last, else from a sample."""
        pending = {at: start for at, start in starts.items() if seen.ends[at] > start}
        for topic in {at.topic for at in pending}:
            copied = self._plane.log.state.mean_bytes(self._plane.pipeline.remote_of(topic))
            if copied is not None:
                self._sampled[topic] = copied
            elif topic not in self._sampled:
                settings = self._plane.pipeline.source.properties
                begins = {at.partition: start for at, start in pending.items() if at.topic == topic}
                records = sample(settings, topic, _SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S, starts=begins)
                self._sampled[topic] = bytes_per_record(records)
        return self._sampled

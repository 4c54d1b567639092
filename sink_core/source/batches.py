"""One batch of a source: a generation of slots, from what is stored to what its slots have sent.

    record, fence → source offsets as they are stored → acknowledge, plan → slots → the log tells → acknowledge

Crash points beside those of slots, and what the next run finds:

    topics.after-create        an empty topic, which it takes as it is
    source.before-acknowledge  records and offsets; the next generation acknowledges by itself
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control.rounds import OnProgress
from calve.sink_core.control.shares import dealt
from calve.sink_core.control.slots.leading import Led, Wanted
from calve.sink_core.control.slots.run import Assignment, Done, SlotBatch, SlotMover
from calve.sink_core.control.slots.slot import BATCH_BYTES, SlotResult, SlotSpec, unexplained
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.failpoints import reach
from calve.sink_core.findings import SOURCE_OFFSET_MOVED
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import NewTopic
from calve.sink_core.kafka.creation import config_text, create_missing
from calve.sink_core.kafka.source import Takes, existing_topic_ids, what_topics_take
from calve.sink_core.source.base import Limits, Stored, Support, Waiting, Work
from calve.sink_core.source.events import RowsSent, Written
from calve.sink_core.source.flat_map import FlatMap, Primitive
from calve.sink_core.source.moving import Move, adopt, migrate
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.send import WHOLE_S, SendSpec, send_slot
from calve.sink_core.source.state import SourceState
from calve.sink_core.source.systems import spec_of
from calve.sink_core.tasks import InProcessTasks
from calve.sink_core.timing import Deadline

_KNOWN_S = 30.0
_POLL_S = 0.05
_KEPT = {"cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(SlotBatch):
    """One generation: `sent` is what its slots committed."""

    sent: tuple[RowsSent, ...] = ()

    @property
    def written(self) -> list[Written]:
        return [each for event in self.sent for each in event.written]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.written) - self.dead_letters

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.written)

    @property
    def dropped(self) -> int:
        return sum(event.dropped for event in self.sent)

    @property
    def dead_letters(self) -> int:
        return sum(event.dead_letters for event in self.sent)

    @property
    def besides(self) -> Mapping[str, int]:
        return {"dropped": self.dropped, "dead_letters": self.dead_letters}

    def to_json(self) -> dict[str, Any]:
        # Not by `super()`: a class with slots is made anew, and the function still knows the old one.
        return {**SlotBatch.to_json(self), "offsets_moved": self.moved}

    @property
    def moved(self) -> int:
        """Source partitions whose offset moved."""
        return len({each.partition for event in self.sent for each in event.moved})


class Sender(SlotMover[SourcePlane, SourceState, SendReport, SlotResult]):
    """Makes the batches of one source."""

    def __init__(self, plane: SourcePlane, *, on_progress: OnProgress | None = None) -> None:
        super().__init__(plane, on_progress=on_progress)
        self._config = plane.pipeline.config
        self._found: Stored | None = None
        self._until: Primitive = None
        self._stuck = dict[FlatMap, Blocker]()
        self._names: Sequence[str] = ()
        self._blockers: Sequence[Blocker] = ()

    @property
    def blockers(self) -> Sequence[Blocker]:
        return self._blockers

    def bind(self) -> None:
        """As any other. Raises ConfigError for a source that is not exactly once where that is required."""
        refuse_unless_exactly_once(self._plane.pipeline, self._plane.source.exactly_once())
        super().bind()

    def look(self) -> int:
        """What is pending, by the log; reads it on."""
        self._look(self._known(self._plane.log.refresh()))
        return self.lag

    def _look(self, stored: Stored) -> Waiting:
        waiting = self._plane.source.waiting(stored)
        self.lag = waiting.records if not self._stuck or self._plan(stored) else 0
        self._blockers = tuple(dict.fromkeys((*waiting.blockers, *self._stuck.values())))
        return waiting

    def _plan(self, stored: Stored) -> tuple[Work, ...]:
        """What is to be read next, without what a task of this run could not read on."""
        return tuple(
            work for work in self._plane.source.plan(stored, self._limits) if work.partition not in self._stuck
        )

    def go_on(self) -> None:
        self._until = None

    def next_batch(self) -> SendReport | None:
        begun, seconds = time.monotonic(), dict[str, float]()
        state = self._plane.log.refresh()
        if self.paused:
            return None
        known = self._known(state)
        waiting = self._look(known)
        self._until = self._until or waiting.until
        work = self._plan(known)
        connect = self._config.connect
        # What Kafka Connect has moved is known behind a fence only, so that a run looks there once.
        news = connect is not None and self._found is None
        if not work and not news and not _updates(self._plane, known):
            return None
        self._plane.ensure_offsets_topic()
        size = sum(each.size for each in work)
        if work:
            self._plane.tasks.begin_start(size)
        slots = self._plane.tasks.parallelism(size) if len(work) > 1 else 1
        if connect is not None:
            # Its tasks have the same ids: each side fences as many as the other may have.
            slots = connect.tasks
        wanted = Wanted(self._plane.pipeline_id, max(1, slots), self._ensure_topics(), {}, {})
        led = self._plane.leader.lead(lambda _state: wanted)
        if led is None:
            return SendReport(lag_after=self.lag, seconds=seconds, overtaken=True)
        return self._reported(led.generation, self._generation(led, begun, seconds), seconds)

    @property
    def _limits(self) -> Limits:
        return Limits(self._config.batch.max_records, self._config.batch.max_bytes, self._until)

    def _ensure_topics(self) -> dict[str, str]:
        """The topics that records may go to, by name with their UUIDs; made where they are missing."""
        target = self._config.target
        topics = list(self._plane.source.topics())
        names = [topic.name for topic in topics]
        if self._config.dead_letters is not None:
            names.append(self._config.dead_letters.topic)
        self._names = names
        there = existing_topic_ids(self._plane.admin, names, timeout_s=ADMIN_TIMEOUT_S)
        stated = {key: config_text(value) for key, value in target.config.items()}
        by_name = {topic.name: topic for topic in topics}
        new = [
            NewTopic(
                name,
                target.partitions or (by_name[name].partitions if name in by_name else None) or -1,
                target.replication_factor or -1,
                # Dead letters are kept each, whatever else is.
                config={**by_name[name].config, **stated} if name in by_name else {**stated, **_KEPT},
            )
            for name in names
            if name not in there
        ]
        if new:
            create_missing(self._plane.admin, new)
            reach("topics.after-create")
            there = _known(self._plane, names)
        return there

    def _assignment(self, led: Led[SourceState]) -> Assignment[SlotResult]:
        stored = self._found = dict(self._plane.offsets.refresh(settled=self._plane.rules.offsets_are_settled))
        self._hold_against_log(led.state, stored)
        self._plane.source.prepare(stored)
        self._plane.source.acknowledge(stored)
        self._keep_positions(led)
        work = self._plan(stored)
        # One slot also where nothing is to be read: offsets may move without records.
        given = by_slot(work, led.slots)
        parts = f"{len(work):,} part{'s' * (len(work) != 1)}"
        where = f"{len(given)} slots" if len(given) > 1 else "one slot"
        return Assignment(
            task=partial(send_slot, self._spec(led.generation, given)),
            # Offsets that move without records need no engine.
            tasks=self._plane.tasks if work else InProcessTasks(),
            slots=len(given),
            records=sum(each.size for each in work),
            message=f"reading {parts} by {where}",
            description=parts,
        )

    def _concluded(self, results: Sequence[SlotResult]) -> str:
        stuck = {at: blocker for result in results for at, blocker in result.blockers.items()}
        self._stuck.update((FlatMap.parsed(at), blocker) for at, blocker in stuck.items())
        return "; ".join(f"blocked: {blocker}" for blocker in stuck.values())

    def _reported(
        self, generation: str, done: Done[SourceState, SlotResult], seconds: Mapping[str, float]
    ) -> SendReport:
        sent = tuple(done.state.of_generation()) if not done.overtaken else ()
        if done.overtaken:
            # What somebody found who was late is none: who leads by now has moved what it was held against.
            done.failed = None
        elif done.failed is None and not sent:
            # A task that ends for what a former try of it has sent is none that is to be explained.
            done.failed = unexplained(done.results)
        if sent:
            reach("source.before-acknowledge")
            self._found = _moved(self._found or {}, sent)
            self._plane.source.acknowledge(self._found)
        self._look(self._known(done.state))
        return SendReport(
            batch_id=generation,
            sent=sent,
            slots=done.slots,
            lag_after=self.lag,
            seconds=seconds,
            overtaken=done.overtaken,
            failed=done.failed,
            written_by=done.written_by,
        )

    def _known(self, state: SourceState) -> Stored:
        """Source offsets by the log, and those that the offsets topic had before the first run."""
        return {**(self._found or {}), **state.offsets}

    def _hold_against_log(self, state: SourceState, stored: dict[FlatMap, FlatMap]) -> None:
        """Make `stored`, the source offsets as they are in their topic, and the log agree; `stored` gets what is copied
        from `offsets.migrate_from`.

        What the log does not know was there before the first run. An offset that is another than the log says nobody of
        ours has moved: raises FindingError. With `connect` Kafka Connect has, by its tasks or its REST interface, under
        the same fences: then the log is told what the topic has.
        """
        moves = [
            Move(partition, stored.get(partition), known, stored.get(partition))
            for partition, known in sorted(state.offsets.items())
            if known != stored.get(partition)
        ]
        generation = state.last_batch_id or ""
        if moves and self._config.connect is not None:
            adopt(self._plane, generation, moves)
        elif moves:
            at, known, found = moves[0].partition, moves[0].logged, moves[0].stored
            finding = SOURCE_OFFSET_MOVED.of(
                at.json,
                stored=known.json if known is not None else "none",
                found=found.json if found is not None else "none",
            )
            raise finding.error(str(self._plane.pipeline.path))
        stored.update(migrate(self._plane, generation))

    def _spec(self, generation: str, given: Sequence[tuple[Work, ...]]) -> SendSpec:
        pipeline, transaction = self._plane.pipeline, self._config.transaction
        letters = self._config.dead_letters
        takes = what_topics_take(self._plane.admin, self._names, timeout_s=ADMIN_TIMEOUT_S)
        return SendSpec(
            pipeline_id=self._plane.pipeline_id,
            source=spec_of(pipeline),
            slots=tuple(self._slot_spec(number, generation, each, takes) for number, each in enumerate(given)),
            work=tuple(given),
            connector=pipeline.connector,
            offsets_topic=pipeline.offsets_topic,
            offset_keys=dict(self._plane.offsets.keys),
            offset_ends=dict(self._plane.offsets.ends),
            dead_letters=letters.topic if letters else None,
            takes=takes,
            max_bytes=transaction.max_bytes,
            interval_s=transaction.interval if transaction.boundary == "interval" else None,
        )

    def _slot_spec(self, number: int, generation: str, work: Sequence[Work], takes: Mapping[str, Takes]) -> SlotSpec:
        spec = self._plane.slot_spec(number, generation)
        # A batch of several records is never larger than a topic takes: a single one is looked at when it is sent.
        producer = {**spec.producer, "batch.size": min([BATCH_BYTES, *(each.max_bytes for each in takes.values())])}
        if any(each.whole for each in work):
            producer["transaction.timeout.ms"] = round(WHOLE_S * 1000)
        return replace(spec, producer=producer)


def refuse_unless_exactly_once(pipeline: SourcePipeline, support: Support) -> None:
    """Raise ConfigError for a source that is not, where that is required."""
    if pipeline.config.exactly_once == "required" and not support.exactly_once:
        raise ConfigError(
            f"{pipeline.reads} does not give every record exactly once: {support.why_not}",
            hint="set it up so that it does, or set exactly_once: requested",
            code=Code.NOT_EXACTLY_ONCE,
        )


def by_slot(work: Sequence[Work], slots: int) -> list[tuple[Work, ...]]:
    """The work, given to at most `slots` slots: largest first, to whom has least; one slot where there is none."""
    sized = [(max(1, each.size), each) for each in sorted(work, key=lambda each: (-each.size, each.partition))]
    given = dealt(sized, max(1, min(slots, len(work))))
    return [tuple(sorted(each, key=lambda work: work.partition)) for each in given]


def _moved(stored: Stored, sent: Sequence[RowsSent]) -> Stored:
    """Source offsets as they are once all of `sent` is committed."""
    after = dict(stored)
    for each in (each for event in sent for each in event.moved):
        if each.after:
            after[FlatMap.parsed(each.partition)] = FlatMap.parsed(each.after)
        else:
            after.pop(FlatMap.parsed(each.partition), None)
    return after


def _known(plane: SourcePlane, names: Sequence[str]) -> dict[str, str]:
    """The UUIDs of topics that were just made: some brokers hear a moment later of them."""
    deadline = Deadline.after(_KNOWN_S)
    while True:
        there = existing_topic_ids(plane.admin, names, timeout_s=ADMIN_TIMEOUT_S)
        if len(there) == len(set(names)) or deadline.passed:
            return there
        time.sleep(_POLL_S)


def _updates(plane: SourcePlane, stored: Stored) -> bool:
    """Whether the source would move offsets without any rows."""
    return any(offset != stored.get(at) for at, offset in plane.source.update_offsets({}).items())

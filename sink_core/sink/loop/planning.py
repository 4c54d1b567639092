"""Looking at the source and planning the next batch: the effects around `plan.plan_batch`, and the bootstrap.

Crash points, and what the next run finds (docs/design.md has the whole table):

    plan.after-start-commit    as in `announcing`
    bootstrap.*                those of publish: positions and the empty DATA_COMPLETE are there together or not at all
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from calve.sink_core.codes import Code
from calve.sink_core.control import checks
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.shares import Limits
from calve.sink_core.control.starting import start_offsets
from calve.sink_core.errors import ConfigError, ProtocolError, Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding
from calve.sink_core.findings import POSITIONS_MISSING
from calve.sink_core.iceberg.commit.other_pipelines import Coverage
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import (
    Silent,
    Topic,
    bytes_per_record,
    describe_topics,
    end_offsets,
    existing_topic_ids,
    high_watermarks,
    log_starts,
    sample,
    topic_ids,
)
from calve.sink_core.offsets import Offsets, Position, Positions, TopicPartition, offsets_to_dense
from calve.sink_core.sink.loop.announcing import announce
from calve.sink_core.sink.loop.plan import plan_batch
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.state import CommitState

BOOTSTRAP = "bootstrap-"
"""Begins the id of the publish that puts the start positions in place."""

_SETTLE_TRIES = 5
_SETTLE_S = 0.2
_PENDING_S = 5.0
_SAMPLE_RECORDS = 200


class _Overtaken(Exception):
    """Another run has moved the positions since they were read, and retention has followed it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source topics at one moment. `positions` is empty before bootstrap; `ends` are LSOs.

    A partition that gives no answer ends at its position: nothing of it is pending, and a batch leaves it there. One
    without a position, or of a topic that can't be described, is in none of them.
    """

    topics: Mapping[str, Topic]
    positions: Mapping[TopicPartition, Position]
    starts: Offsets
    ends: Offsets
    silent: Silent = field(default_factory=Silent)

    @property
    def answering(self) -> Offsets:
        """The ends that were answered."""
        return {at: end for at, end in self.ends.items() if at not in self.silent.partitions}

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in self.topics.items()}

    @property
    def timestamp_types(self) -> dict[str, int]:
        return {name: topic.timestamp_type for name, topic in self.topics.items()}

    def lag(self) -> dict[TopicPartition, int]:
        """Offsets not yet published, per partition; a partition without a position begins at its log start."""
        return {at: end - self.next_offset(at) for at, end in self.ends.items()}

    def up_to(self, until: Offsets | None) -> Source:
        """The same with nothing to read beyond `until`; a partition that has no offset there has nothing to read."""
        if until is None:
            return self
        ends = {at: max(self.next_offset(at), min(end, until.get(at, 0))) for at, end in self.ends.items()}
        return replace(self, ends=ends)

    def next_offset(self, at: TopicPartition) -> int:
        position = self.positions.get(at)
        return position.offset if position else self.starts[at]

    def next_offsets(self) -> dict[TopicPartition, int]:
        return {at: self.next_offset(at) for at in self.ends}


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was made against. `high_watermarks` include open transactions, `source.ends` don't."""

    plan: BatchPlan
    source: Source
    high_watermarks: Offsets


class Planner:
    """Plans one pipeline's batches."""

    def __init__(self, session: Session, *, max_tasks: int | None = None) -> None:
        self._session = session
        self._config = session.pipeline.config
        self._max_tasks = max_tasks
        self._sampled: dict[str, float] = {}

    def look(self, silent: Silent | None = None) -> Source:
        """Ends and positions as they are; raises FindingError if they contradict what was published last.

        Topics first, then positions: the broker drops a topic's offsets with the topic, and a recreated topic must not
        be taken for lost positions. With `silent`, of what answered in an earlier look, topics and partitions that give
        no answer are left alone, as long as there are others.
        """
        while True:
            asked = silent.again() if silent is not None else None
            topics = self._topics(asked)
            positions = self._settled_positions(topics, _partitions(topics))
            try:
                return self._source(topics, positions, asked)
            except _Overtaken:
                continue

    def pending_by_log(self) -> int:
        """The number of pending offsets by what was read of the control log, not held against anything. Raises
        CalveError where there is no answer.
        """
        known, silent, admin = self._session.log.state.positions() or {}, Silent(), self._session.admin
        topics = describe_topics(admin, self._session.source_topics(), timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        ends = end_offsets(admin, _partitions(topics), timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        return sum(max(0, end - known.get(at, 0)) for at, end in ends.items())

    def _topics(self, silent: Silent | None = None) -> dict[str, Topic]:
        names, admin = self._session.source_topics(), self._session.admin
        topics = describe_topics(admin, names, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        self._stop_on(checks.topic_recreated(topic_ids, self._session.log.refresh()))
        return topics

    def _source(
        self,
        topics: Mapping[str, Topic],
        positions: Mapping[TopicPartition, Position],
        silent: Silent | None = None,
    ) -> Source:
        admin, partitions = self._session.admin, _partitions(topics)
        # In this order a start never lies beyond its end, whatever retention deletes between the two.
        starts = log_starts(admin, partitions, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        ends = end_offsets(admin, partitions, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        finding = checks.against_log(positions, starts, ends)
        if finding is not None and self._positions([*positions]) != positions:
            raise _Overtaken
        self._stop_on(finding)
        if silent is None:
            return Source(topics, positions, starts, ends)
        # What was planned without them is published with their positions, which so keep the id of the last batch.
        stay = {at: positions[at].offset for at in silent.partitions if at in positions}
        starts = {at: start for at, start in starts.items() if at in ends} | stay
        return Source(topics, positions, starts, {**ends, **stay}, silent)

    def next(self, source: Source, until: Offsets | None = None) -> Planned | None:
        """The next batch after `source` was looked at, or None if there is nothing to read before `until`.

        `START_COMMIT` is written before partitions and ends are listed again: whatever lies beyond those high
        watermarks, or in a partition that is not listed, was appended after its timestamp, which is the broker's.
        """
        if not any(source.up_to(until).lag().values()):
            return None
        session, batch_id = self._session, str(uuid.uuid4())
        predecessor = self._predecessor(source.positions)
        started = announce(session, batch_id, predecessor, "batch")
        reach("plan.after-start-commit")
        silent = source.silent.again()
        topics = self._topics(silent)
        high = high_watermarks(session.admin, _partitions(topics), timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        try:
            source = self._source(topics, source.positions, silent)
        except _Overtaken:
            return self.next(self.look(silent), until)
        plan = self._plan(source.up_to(until), batch_id, predecessor, started.broker_time_ms, started.instant_ms)
        return Planned(plan, source, high) if plan else None

    def preview(self) -> BatchPlan | None:
        """The plan a run would make now, None if there is nothing to read. Writes nothing.

        The control log must have been read. Raises FindingError if a run would stop.
        """
        self._session.check_bound()
        source = self.look(Silent())
        predecessor = self._predecessor(source.positions) if self._session.log.state.last_publish else ""
        return self._plan(source, "preview", predecessor, broker_time_ms=-1)

    def preview_first(self) -> BatchPlan | None:
        """The plan that a pipeline would begin with now, by `source.start`. Reads no control log."""
        topics = describe_topics(self._session.admin, self._session.source_topics(), timeout_s=ADMIN_TIMEOUT_S)
        source = self._source(topics, {})
        begun = {at: Position(offset, "") for at, offset in self._start_offsets(source).items()}
        return self._plan(replace(source, positions=begun), "preview", "", broker_time_ms=-1)

    def _plan(
        self, source: Source, batch_id: str, predecessor: str, broker_time_ms: int, instant_ms: int = 0
    ) -> BatchPlan | None:
        batch = self._config.batch
        records = min(sum(source.lag().values()), batch.max_records)
        tasks = self._session.engine.parallelism(records) if self._max_tasks is None else self._max_tasks
        return plan_batch(
            batch_id=batch_id,
            predecessor=predecessor,
            starts=source.next_offsets(),
            ends=source.ends,
            bytes_per_record=self._bytes_per_record(source, self._session.log.state),
            limits=Limits(batch.max_records, batch.max_bytes, tasks, batch.min_task_bytes),
            topic_ids=source.topic_ids,
            broker_time_ms=broker_time_ms,
            instant_ms=instant_ms,
        )

    def _predecessor(self, positions: Positions) -> str:
        """What the positions of the last publish carry: its batch id, and the mark of a giving up since.

        Where none of its topics is read any more it is the log's last batch, provided that they were deleted: of topics
        that exist the positions would have to be asked.
        """
        state = self._session.log.state
        last = state.positions() or {}
        ids = {position.metadata for at, position in positions.items() if at in last}
        if len(ids) > 1:
            named = ", ".join(sorted(ids)[:3])
            raise ProtocolError(
                f"the positions carry {len(ids)} batch ids ({named}), expected one", code=Code.EDITED_POSITIONS
            )
        if ids:
            return ids.pop()
        topics = {at.topic for at in last}
        if unread := existing_topic_ids(self._session.admin, topics, timeout_s=ADMIN_TIMEOUT_S):
            raise ConfigError(
                f"the pipeline's last publish was of topics {', '.join(sorted(topics))}, and of those that exist none "
                "is read any more",
                hint=f"have source.topics or source.topics_regex take {min(unread)} as well until a batch with the new "
                "topics is published, or give the new topics a pipeline of their own",
                code=Code.UNREAD_TOPICS,
            )
        return state.last_batch_id or ""

    def bootstrap(self, source: Source, starts: Offsets | None = None) -> Decision:
        """Put the start positions of all partitions in place, together with an empty `DATA_COMPLETE`.

        Only if, after the fence, no partition has a position and the log holds no `DATA_COMPLETE`. `source.start` of
        the pipeline file is consulted here and never again, and not even here if `starts` are given.
        """
        session = self._session
        batch_id = f"{BOOTSTRAP}{uuid.uuid4()}"
        starts = self._start_offsets(source) if starts is None else starts
        event = DataComplete(
            pipeline_id=session.pipeline_id,
            batch_id=batch_id,
            predecessor="",
            kind="bootstrap",
            tables=(),
            totals={},
            topic_ids=source.topic_ids,
            positions=offsets_to_dense(starts),
            through_ms={},
            through_is_estimate=True,
            value_bytes_by_topic={},
            records_by_topic={},
        )

        def decide(found: Positions, state: CommitState) -> Decision:
            if not state.rules.bootstrap_looks_again:
                return Decision(Verdict.PUBLISH, "")
            if state.last_publish is not None:
                return Decision(Verdict.ALREADY_PUBLISHED, "another run has put the start positions in place")
            if found:
                return Decision(Verdict.STALE, "the group has positions that no publish of this pipeline put there")
            self._stop_on(checks.truncated(state, session.log.topic))
            return Decision(Verdict.PUBLISH, "first use")

        positions = {at: Position(offset, batch_id) for at, offset in starts.items()}
        events = [*session.rebinding(), event] if session.rules.bootstrap_writes_event else []
        decision = session.publisher.publish(decide, events, positions)
        if decision.verdict is Verdict.STALE:
            raise ProtocolError(
                f"group {session.pipeline.group}: {decision.why}",
                hint="the group belongs to Calve alone: delete its offsets if nothing else needs them, then run again",
                code=Code.FOREIGN_POSITIONS,
            )
        session.log.refresh_to_end()
        session.check_bound()
        return decision

    def first_coverage(self) -> Coverage:
        """What the bootstrap would put in place now."""
        source = self.look()
        return Coverage(source.topic_ids, self._start_offsets(source))

    def _settled_positions(
        self, topics: Mapping[str, Topic], partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Position]:
        """Positions that agree with the log, or a finding.

        Positions, the log to its end, positions again unchanged: without the second look a publish that happens in
        between would be taken for somebody else's change.
        """
        session, last = self._session, None
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        for attempt in range(_SETTLE_TRIES):
            found = self._positions(partitions)
            state = session.log.refresh()
            finding = checks.positions(found, topic_ids, state)
            if not session.rules.positions_are_read_twice:
                self._stop_on(finding)
                return found
            if finding is not None or (found and state.last_publish is None):
                state = session.log.refresh_to_end()
                finding = checks.positions(found, topic_ids, state)
                finding = finding or checks.lost_log(found, state, session.log.topic)
            added = {at for at in state.positions() or () if at.topic in topics}.difference(partitions)
            if added:
                # Another run has published with partitions that the topics did not have when they were described.
                partitions = [*partitions, *sorted(added)]
                continue
            if finding is None:
                return found
            last = finding
            if self._positions(partitions) == found:
                break
            time.sleep(_SETTLE_S * attempt)
        if last is not None and last.kind is POSITIONS_MISSING:
            everything, state = session.publisher.fence_and_read()
            found = {at: position for at, position in everything.items() if at.topic in topics}
            last = checks.positions(found, topic_ids, state)
            if last is None:
                return found
        self._stop_on(last)
        raise ProtocolError(
            f"group {session.pipeline.group} changes faster than it can be read", code=Code.GROUP_IN_USE
        )

    def _positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Position]:
        """The positions as they are.

        A publisher that died with offsets in its transaction holds their readers up until the transaction times out;
        the fence ends it at once. A living one needs milliseconds, and would only try again.
        """
        try:
            return self._session.group.positions(partitions, timeout_s=_PENDING_S)
        except Unreachable:
            return self._session.publisher.fence_and_read(partitions)[0]

    def _start_offsets(self, source: Source) -> dict[TopicPartition, int]:
        return start_offsets(
            self._config.source.start,
            log_starts=source.starts,
            ends=source.ends,
            admin=self._session.admin,
            settings=self._session.pipeline.kafka.properties,
        )

    def _bytes_per_record(self, source: Source, state: CommitState) -> dict[str, float]:
        """Per topic that has a lag: from the last batch that had records of it, else from a sample of them."""
        last = state.complete.event if state.complete else None
        known = {t: last.value_bytes_by_topic[t] / n for t, n in last.records_by_topic.items() if n} if last else {}
        pending = [at for at, lag in sorted(source.lag().items()) if lag]
        for topic in {at.topic for at in pending}:
            if topic not in known and topic not in self._sampled:
                settings = self._session.pipeline.kafka.properties
                starts = {at.partition: source.next_offset(at) for at in pending if at.topic == topic}
                records = sample(settings, topic, _SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S, starts=starts)
                self._sampled[topic] = bytes_per_record(records)
        self._sampled.update(known)
        return self._sampled

    def _stop_on(self, finding: Finding | None) -> None:
        if finding is not None:
            raise finding.error(str(self._session.pipeline.path))


def check_topics(session: Session, planned: Mapping[str, str]) -> None:
    """Raise FindingError if a topic has another UUID than `planned` says: other records are at the same offsets."""
    found = topic_ids(session.admin, planned, timeout_s=ADMIN_TIMEOUT_S)
    finding = checks.topic_changed(planned, found, session.rules)
    if finding is not None:
        raise finding.error(str(session.pipeline.path))


def _partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    return [at for topic in topics.values() for at in topic.all_partitions]

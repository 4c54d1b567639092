"""Looking at a pipeline's source and control log from the sensor: one bounded question a tick to each cluster, and one
more if the log grew.

Lives in the code server for as long as that does, so that the control log is read once and then followed.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, Self, TypeVar

import dagster as dg
from confluent_kafka.admin import AdminClient

from calve.orchestration.dagster.common.arrivals import ALL, Arrivals
from calve.orchestration.dagster.common.topics import pattern_key, topic_key
from calve.orchestration.dagster.common.trigger import Sight
from calve.sink_core.codes import Code
from calve.sink_core.config.effective import KafkaSettings, Pipeline
from calve.sink_core.config.topics import Topics
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.log import PARTITION, ControlLog
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import ConfigError, FindingError, ProtocolError, RetriableError, TerminalError, Unreachable
from calve.sink_core.finding import Finding
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import Silent, Topic, describe_topics, end_offsets
from calve.sink_core.offsets import Offsets, TopicPartition
from calve.sink_core.timing import Deadline

P = TypeVar("P", bound=Pipeline)
S = TypeVar("S", bound=AnyState)
T = TypeVar("T")

LOOK_TIMEOUT_S = 2.0
"""For each question; the other pipelines' sensors may have to wait for it."""

LOOK_MOST_S = 16.0
"""After failures in a row a question may take twice as long each time, up to this: a cluster that is far, or has
thousands of topics, always needs longer."""

READ_TIMEOUT_S = 20.0
"""For the control log, which is long only at the first look. Dagster gives a tick 60 s."""

WITHIN_S = 50.0
"""For all questions of a look, and for whoever looks at the same moment."""

_TOPICS_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """Sums over a topic's partitions."""

    lag: int
    end: int


@dataclass(slots=True)
class Patience:
    """How long one question of a look may take; use as a context manager around a look."""

    each_s: float = LOOK_TIMEOUT_S
    _until: Deadline = field(default_factory=lambda: Deadline.after(WITHIN_S))
    _slowest_s: float = 0.0

    @property
    def timeout_s(self) -> float:
        return max(0.1, min(self.each_s, self._until.left_s))

    def asked(self, question: Callable[[float], T]) -> T:
        """What a question answers that is given its time-out."""
        begun_s = time.monotonic()
        answer = question(self.timeout_s)
        self._slowest_s = max(self._slowest_s, time.monotonic() - begun_s)
        return answer

    def __enter__(self) -> Self:
        self._until, self._slowest_s = Deadline.after(WITHIN_S), 0.0
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, RetriableError):
            self.each_s = min(LOOK_MOST_S, 2 * self.each_s)
        elif error is None:
            # What was needed is granted from then on: else each second look of a far cluster would fail.
            self.each_s = min(LOOK_MOST_S, max(LOOK_TIMEOUT_S, 2 * self._slowest_s))


class FollowedLog(Generic[S]):
    """One pipeline's control log, read once and then followed; sensor and schedules may ask at once.

    Asks the cluster that the control topic is on, and nobody else: what is published is to be committed, and positions
    kept alive, also while what is read is away.
    """

    def __init__(self, pipeline: Pipeline, fold: Fold[S]) -> None:
        self._pipeline = pipeline
        self._fold = fold
        self._lock = threading.Lock()
        self._log: ControlLog[S] | None = None

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self._pipeline.control_topic, PARTITION)

    @property
    def last(self) -> S | None:
        """The fold as it was read last."""
        return self._log.state if self._log is not None else None

    def state(self, end: int | None = None) -> S | None:
        """The fold as of now; None if the pipeline has never run. With `end`, the log's own, it is read only if that
        has moved.

        Raises Unreachable if the broker doesn't answer in time, ConfigError if it refuses, and FindingError or
        ProtocolError if the log contradicts what was read of it.
        """
        with taken(self._lock, f"control topic {self._pipeline.control_topic}"):
            try:
                log = self._log = self._log or self._opened()
                if log is not None and (end is None or not log.state.next_offset or end != log.state.next_offset):
                    log.refresh(within_s=READ_TIMEOUT_S)
            except TerminalError:
                self._forget()
                raise
            return self.last

    def forget(self) -> None:
        """Have the log looked up afresh the next time."""
        with taken(self._lock, f"control topic {self._pipeline.control_topic}"):
            self._forget()

    def _forget(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None

    def _opened(self) -> ControlLog[S] | None:
        """The control log if there is one: a pipeline that has never run has none."""
        topic, admin = self._pipeline.control_topic, shared_admin(self._pipeline.kafka)
        try:
            describe_topics(admin, [topic], timeout_s=LOOK_TIMEOUT_S)
        except ConfigError:
            return None
        return ControlLog(self._pipeline.kafka.properties, topic, self._fold, admin=admin)


@contextmanager
def taken(lock: threading.Lock, what: str) -> Generator[None]:
    """Hold a lock. Raises Unreachable where somebody else looks for longer than a look may take."""
    if not lock.acquire(timeout=LOOK_TIMEOUT_S):
        raise Unreachable(f"{what}: another look has not come back yet", hint="the next one tells", code=Code.NO_ANSWER)
    try:
        yield
    finally:
        lock.release()


class LogWatch(ABC, Generic[P, S]):
    """One pipeline's source and control log; connects at the first look. Sensor and schedule may look at once.

    A kind says where its source is, which topics it reads and what its log's positions are.
    """

    def __init__(self, pipeline: P, fold: Fold[S], source: KafkaSettings) -> None:
        self._pipeline = pipeline
        self._source = source
        self._lock = threading.Lock()
        self._log = FollowedLog(pipeline, fold)
        self._patience = Patience()
        self._topics: dict[str, Topic] = {}
        self._topics_until = Deadline.after(0.0)
        self._ends: Offsets = {}
        self._silent = Silent()
        self._arrivals = Arrivals()

    @abstractmethod
    def selected(self, admin: AdminClient, timeout_s: float) -> Sequence[str]:
        """The topics to look at, as the source has them now."""

    @abstractmethod
    def positions(self, state: S) -> Offsets:
        """The next offsets by partition of the source, of those that have one."""

    @abstractmethod
    def recreated(self, state: S, topic_ids: Mapping[str, str]) -> Finding | None:
        """A topic that was made anew since it was read."""

    def behind(self, _state: S) -> int:
        """How many tables lack what is published, where the kind has some and its runs commit to them."""
        return 0

    def lacking(self, _state: S) -> Mapping[str, int | None]:
        """By subject of the check `freshness` the first control offset of what is published and not there; None if
        nothing is missing.
        """
        return {ALL: None}

    @abstractmethod
    def observed(self) -> Topics:
        """What is read, by the file."""

    def look(self) -> Sight:
        """Raises Unreachable if the broker doesn't answer in time, ConfigError if it refuses or lacks all topics.

        Of single topics and partitions that give no answer nothing can be read, and so nothing is pending.
        """
        with taken(self._lock, f"pipeline {self._pipeline.name}"), self._patience:
            try:
                return self._look()
            except (FindingError, ProtocolError) as error:
                end = sum(self._ends.values())
                return Sight(lag=0, end=end, bootstrapped=True, answer=None, contradiction=error.message)
            except TerminalError:
                # What doesn't fit is looked up afresh the next time: a topic may have been made or deleted meanwhile.
                self._topics_until = Deadline.after(0.0)
                self._log.forget()
                raise

    def state(self) -> S | None:
        """The control log's fold as of now, whatever the source says; None if the pipeline has never run."""
        return self._log.state()

    def through_s(self) -> Mapping[str, float]:
        """By subject of the check `freshness` up to when all has arrived, as far as looks know."""
        return self._arrivals.through_s

    def by_topic(self) -> dict[str, TopicSeen]:
        """What the last look saw."""
        lags = self._lags(self._ends, self._log.last)
        ends, topics = self._ends, self._topics
        return {
            name: TopicSeen(
                sum(max(0, lag) for at, lag in lags.items() if at.topic == name),
                sum(end for at, end in ends.items() if at.topic == name),
            )
            for name in topics
        }

    def observations(self) -> list[dg.AssetObservation]:
        """What the last look saw; without data versions, or tables would be out of sync whenever a topic moves."""
        source, by_topic = self.observed(), self.by_topic()
        found = [
            dg.AssetObservation(
                topic_key(self._pipeline, source, topic), metadata={"lag": seen.lag, "end offsets": seen.end}
            )
            for topic, seen in by_topic.items()
            if topic in source.topics
        ]
        if source.topics_regex is not None:
            others = [seen for topic, seen in by_topic.items() if topic not in source.topics]
            lag, end = sum(seen.lag for seen in others), sum(seen.end for seen in others)
            known = {"topics": len(others), "lag": lag, "end offsets": end}
            found.append(dg.AssetObservation(pattern_key(self._pipeline), metadata=known))
        return found

    def _look(self) -> Sight:
        partitions = [at for topic in self._described().values() for at in topic.all_partitions]
        known, source = self._log.last is not None, shared_admin(self._source)
        together = known and self._source == self._pipeline.kafka
        asked = [*partitions, self._log.at] if together else partitions
        silent = self._silent = self._silent.again()
        ends = self._patience.asked(lambda timeout_s: end_offsets(source, asked, timeout_s=timeout_s, silent=silent))
        log_end = ends.pop(self._log.at, None) if together else None
        for error in silent.partitions.values() if self._log.at in silent.partitions or not ends else ():
            raise error
        self._ends = ends
        state = self._log.state(log_end)
        if state is None:
            self._topics_until = Deadline.after(0.0)
        topic_ids = {name: topic.topic_id for name, topic in self._topics.items()}
        sight = self.sight(ends, state, topic_ids)
        if state is not None and sight.bootstrapped and not sight.contradiction:
            self._arrivals.look(time.time(), ends, self.positions(state), state.next_offset, self.lacking(state))
        return sight

    def _described(self) -> dict[str, Topic]:
        if self._topics_until.passed:
            source, asked = shared_admin(self._source), self._patience.asked
            names = asked(lambda timeout_s: self.selected(source, timeout_s))
            self._topics = asked(lambda timeout_s: describe_topics(source, names, timeout_s=timeout_s, silent=Silent()))
            self._topics_until = Deadline.after(_TOPICS_EVERY_S)
        return self._topics

    def sight(self, ends: Offsets, state: S | None, topic_ids: Mapping[str, str]) -> Sight:
        """What these ends and the control log's fold say; no fold where there is no log. Asks nobody."""
        end, paused, answer = sum(ends.values()), _paused(state), answer_of(state)
        if state is None or state.last_publish is None:
            return Sight(lag=end, end=end, bootstrapped=False, paused=paused, answer=answer)
        lags = self._lags(ends, state)
        beyond = [f"{at}: the position lies {-lag} beyond the end" for at, lag in lags.items() if lag < 0]
        recreated, by_topic = self.recreated(state, topic_ids), Counter[str]()
        for at, lag in lags.items():
            by_topic[at.topic] += max(0, lag)
        return Sight(
            lag=by_topic.total(),
            end=end,
            bootstrapped=True,
            paused=paused,
            answer=answer,
            published_s=state.complete.event.written_at_ms / 1000 if state.complete else 0.0,
            contradiction=str(recreated.error().message) if recreated else next(iter(beyond), None),
            behind=self.behind(state),
            by_topic={topic: lag for topic, lag in by_topic.items() if lag},
        )

    def _lags(self, ends: Offsets, state: S | None) -> dict[TopicPartition, int]:
        """A partition without a position is read from its beginning, which is at 0 or above."""
        positions = self.positions(state) if state else {}
        return {at: end - positions.get(at, 0) for at, end in ends.items()}


def answer_of(state: AnyState | None) -> str:
    """The id of the last RESUMED or RESOLVED; empty without one."""
    return "" if state is None else state.answer


def _paused(state: AnyState | None) -> str | None:
    return str(state.paused) if state is not None and state.paused is not None else None


def shared_admin(kafka: KafkaSettings) -> AdminClient:
    """One for all pipelines of a cluster: each has threads of its own."""
    return _shared_admin(tuple(sorted(kafka.properties.items())))


@cache
def _shared_admin(settings: tuple[tuple[str, object], ...]) -> AdminClient:
    return clients.admin(dict(settings))

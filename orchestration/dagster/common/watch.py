"""Looking at a pipeline's source and control log from the sensor: one bounded question a tick to each cluster, and one
more if the log grew.

Lives in the code server for as long as that does, so that the control log is read once and then followed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Generic, TypeVar

import dagster as dg
from confluent_kafka.admin import AdminClient

from calve.orchestration.dagster.common.topics import pattern_key, topic_key
from calve.orchestration.dagster.common.trigger import Sight
from calve.sink_core.config.effective import KafkaSettings, Pipeline
from calve.sink_core.config.topics import Topics
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.log import PARTITION, ControlLog
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import ConfigError, FindingError, ProtocolError, TerminalError
from calve.sink_core.finding import Finding
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.source import Topic, describe_topics, end_offsets
from calve.sink_core.offsets import Offsets, TopicPartition
from calve.sink_core.timing import Deadline

P = TypeVar("P", bound=Pipeline)
S = TypeVar("S", bound=AnyState)

LOOK_TIMEOUT_S = 2.0
"""For each question; the other pipelines' sensors may have to wait for it."""

READ_TIMEOUT_S = 20.0
"""For the control log, which is long only at the first look. Dagster gives a tick 60 s."""

_TOPICS_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """Sums over a topic's partitions."""

    lag: int
    end: int


class LogWatch(ABC, Generic[P, S]):
    """One pipeline's source and control log; connects at the first look. Sensor and schedule may look at once.

    A kind says where its source is, which topics it reads and what its log's positions are.
    """

    def __init__(self, pipeline: P, fold: Fold[S], source: KafkaSettings) -> None:
        self._pipeline = pipeline
        self._fold = fold
        self._source = source
        self._lock = threading.Lock()
        self._log: ControlLog[S] | None = None
        self._topics: dict[str, Topic] = {}
        self._topics_until = Deadline.after(0.0)
        self._ends: Offsets = {}

    @abstractmethod
    def selected(self, admin: AdminClient) -> Sequence[str]:
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

    @abstractmethod
    def observed(self) -> Topics:
        """What is read, by the file."""

    def look(self) -> Sight:
        """Raises Unreachable if the broker doesn't answer in time, ConfigError if it refuses or lacks a topic."""
        with self._lock:
            try:
                return self._look_or_forget()
            except (FindingError, ProtocolError) as error:
                return Sight(lag=0, end=sum(self._ends.values()), bootstrapped=True, contradiction=error.message)

    def state(self) -> S | None:
        """The control log's fold as of now; None if the pipeline has never run.

        Raises as `look` does, and FindingError or ProtocolError if the log contradicts what was read of it.
        """
        with self._lock:
            self._look_or_forget()
            return self._log.state if self._log else None

    def by_topic(self) -> dict[str, TopicSeen]:
        """What the last look saw."""
        lags = self._lags(self._ends, self._log.state if self._log else None)
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

    def _look_or_forget(self) -> Sight:
        """What doesn't fit is looked up afresh the next time: a topic may have been made or deleted meanwhile."""
        try:
            return self._look()
        except TerminalError:
            if self._log is not None:
                self._log.close()
            self._log, self._topics_until = None, Deadline.after(0.0)
            raise

    def _look(self) -> Sight:
        partitions = [at for topic in self._described().values() for at in topic.all_partitions]
        log_at = TopicPartition(self._pipeline.control_topic, PARTITION)
        together = self._source == self._pipeline.kafka
        asked = [*partitions, log_at] if self._log and together else partitions
        ends = dict(end_offsets(self._source_admin, asked, timeout_s=LOOK_TIMEOUT_S))
        if self._log and not together:
            ends |= end_offsets(self._admin, [log_at], timeout_s=LOOK_TIMEOUT_S)
        log_end = ends.pop(log_at, 0)
        self._ends = ends
        if self._log is not None and (not self._log.state.next_offset or log_end != self._log.state.next_offset):
            self._log.refresh(timeout_s=READ_TIMEOUT_S)
        topic_ids = {name: topic.topic_id for name, topic in self._topics.items()}
        return self.sight(ends, self._log.state if self._log else None, topic_ids)

    def _described(self) -> dict[str, Topic]:
        if self._topics_until.passed:
            names = self.selected(self._source_admin)
            self._topics = describe_topics(self._source_admin, names, timeout_s=LOOK_TIMEOUT_S)
            self._log = self._log or self._opened()
            self._topics_until = Deadline.after(_TOPICS_EVERY_S if self._log else 0.0)
        return self._topics

    def _opened(self) -> ControlLog[S] | None:
        """The control log if there is one: a pipeline that has never run has none."""
        topic = self._pipeline.control_topic
        try:
            describe_topics(self._admin, [topic], timeout_s=LOOK_TIMEOUT_S)
        except ConfigError:
            return None
        return ControlLog(self._pipeline.kafka.properties, topic, self._fold, admin=self._admin)

    @cached_property
    def _admin(self) -> AdminClient:
        return _shared_admin(tuple(sorted(self._pipeline.kafka.properties.items())))

    @cached_property
    def _source_admin(self) -> AdminClient:
        return _shared_admin(tuple(sorted(self._source.properties.items())))

    def sight(self, ends: Offsets, state: S | None, topic_ids: Mapping[str, str]) -> Sight:
        """What these ends and the control log's fold say; no fold where there is no log. Asks nobody."""
        end, paused, answered_s = sum(ends.values()), _paused(state), _answered_s(state)
        if state is None or state.last_publish is None:
            return Sight(lag=end, end=end, bootstrapped=False, paused=paused, answered_s=answered_s)
        lags = self._lags(ends, state)
        beyond = [f"{at}: the position lies {-lag} beyond the end" for at, lag in lags.items() if lag < 0]
        recreated = self.recreated(state, topic_ids)
        return Sight(
            lag=sum(max(0, lag) for lag in lags.values()),
            end=end,
            bootstrapped=True,
            paused=paused,
            answered_s=answered_s,
            published_s=state.complete.event.written_at_ms / 1000 if state.complete else 0.0,
            contradiction=str(recreated.error().message) if recreated else next(iter(beyond), None),
            behind=self.behind(state),
        )

    def _lags(self, ends: Offsets, state: S | None) -> dict[TopicPartition, int]:
        """A partition without a position is read from its beginning, which is at 0 or above."""
        positions = self.positions(state) if state else {}
        return {at: end - positions.get(at, 0) for at, end in ends.items()}


def _answered_s(state: AnyState | None) -> float:
    """When somebody last wrote RESUMED or RESOLVED."""
    if state is None:
        return 0.0
    return state.answered_ms / 1000


def _paused(state: AnyState | None) -> str | None:
    return str(state.paused) if state is not None and state.paused is not None else None


@cache
def _shared_admin(settings: tuple[tuple[str, object], ...]) -> AdminClient:
    """One for all pipelines of a cluster: each has threads of its own."""
    return clients.admin(dict(settings))

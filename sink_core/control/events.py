"""The events that every kind of pipeline has on its control topic, as frozen values.

A kind has its own beside them, and says more in some of these: its `BatchStarted`, `BatchPublished` and `Checkpoint`
inherit from those here. `control.fold` has their form on the wire. Names and meanings follow the Iceberg Kafka Connect
sink's events where it has them.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import ClassVar, Generic, TypeVar

CALVE_VERSION = version("calve")
ByPartition = Mapping[str, tuple[int, ...]]
"""A long per partition and topic; -1 where there is none."""


def _new_id() -> str:
    return str(uuid.uuid4())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What every event says. `written_at_ms` is the writer's clock: shown, never decided on."""

    event_type: ClassVar[str]
    pipeline_id: str
    event_id: str = field(default_factory=_new_id)
    written_at_ms: int = field(default_factory=_now_ms)
    calve_version: str = CALVE_VERSION

    @property
    def min_reader(self) -> int:
        """The lowest reader version of the event's kind that understands it."""
        return 1


E_co = TypeVar("E_co", bound=Event, covariant=True)


@dataclass(frozen=True, slots=True)
class Logged(Generic[E_co]):
    """An event and its offset in the control topic."""

    offset: int
    event: E_co


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineBound(Event):
    """First use of a pipeline's name; the first in the log wins. A later one of the same id binds it anew.

    `fingerprint` is of what the kind is bound to beside the cluster: a sink to its catalog.
    """

    event_type: ClassVar[str] = "PIPELINE_BOUND"
    pipeline: str
    deployment: str
    fingerprint: str
    cluster_id: str
    control_topic_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStarted(Event):
    """A batch is planned that continues `predecessor`. For people; no rule rests on it."""

    batch_id: str
    predecessor: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPublished(Event):
    """A batch counts from here on. `positions` are the next offsets of every partition afterwards."""

    batch_id: str
    predecessor: str
    topic_ids: Mapping[str, str]
    positions: ByPartition

    @property
    def moves_positions(self) -> bool:
        """Whether it is a link of the chain of positions."""
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAbandoned(Event):
    """A batch was given up, so that nobody waits for it. The mark in the group's metadata is what stops it."""

    event_type: ClassVar[str] = "BATCH_ABANDONED"
    batch_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused(Event):
    """All hosts stop planning and committing."""

    event_type: ClassVar[str] = "PAUSED"
    by: str
    reason: str

    def __str__(self) -> str:
        return f"paused by {self.by}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed(Event):
    """The end of a pause."""

    event_type: ClassVar[str] = "RESUMED"
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved(Event):
    """Somebody answered a finding."""

    event_type: ClassVar[str] = "RESOLVED"
    finding: str
    subject: str
    choice: str
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(Event):
    """Everything below `up_to_offset` folded into one event, so that it can be trimmed.

    `former_positions` are of partitions that the last publish left out and `former_topic_ids` of their topics. The
    trim deletes up to `delete_below`: what lies above is still needed. `answer` is the id of the last RESUMED or
    RESOLVED.
    """

    event_type: ClassVar[str] = "CHECKPOINT"
    up_to_offset: int
    pipeline: str
    deployment: str
    fingerprint: str
    cluster_id: str
    control_topic_id: str
    paused_by: str | None
    last_complete_batch_id: str | None
    positions: ByPartition
    topic_ids: Mapping[str, str]
    paused_reason: str = ""
    paused_at_ms: int = 0
    resumed_by: str | None = None
    resumed_at_ms: int = 0
    answer: str = ""
    former_positions: ByPartition = field(default_factory=dict[str, tuple[int, ...]])
    former_topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    delete_below: int = -1

    @property
    def bound(self) -> PipelineBound:
        """The first binding of all."""
        return PipelineBound(
            pipeline_id=self.pipeline_id,
            event_id=self.event_id,
            written_at_ms=self.written_at_ms,
            calve_version=self.calve_version,
            pipeline=self.pipeline,
            deployment=self.deployment,
            fingerprint=self.fingerprint,
            cluster_id=self.cluster_id,
            control_topic_id=self.control_topic_id,
        )

    @property
    def paused(self) -> Paused | None:
        """The pause in effect, with its reason and its time."""
        if self.paused_by is None:
            return None
        return Paused(
            pipeline_id=self.pipeline_id,
            event_id=self.event_id,
            written_at_ms=self.paused_at_ms or self.written_at_ms,
            calve_version=self.calve_version,
            by=self.paused_by,
            reason=self.paused_reason or "paused before the last checkpoint",
        )

    @property
    def resumed(self) -> Resumed | None:
        """The last resume."""
        if self.resumed_by is None:
            return None
        return Resumed(
            pipeline_id=self.pipeline_id,
            event_id=self.event_id,
            written_at_ms=self.resumed_at_ms,
            calve_version=self.calve_version,
            by=self.resumed_by,
        )

"""The control plane of one pipeline: cluster, control log, positions, publisher, and what the pipeline is bound to.

Every command and every Dagster op starts here. What a kind moves records from or to, it opens beside it.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.control import checks
from calve.sink_core.control.checkpoint import Needed, checkpoint_of
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.control.publisher import Publisher
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import ConfigError
from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding, FindingKind
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.first_contact import PATIENT_S, cluster
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.rules import ALL, Rules

P = TypeVar("P", bound=Pipeline)
S = TypeVar("S", bound=AnyState)


class ControlPlane(ABC, Generic[P, S]):
    """Use as a context manager. `bound` is set once `bind` has been called, which `read_only` takes the place of.

    A kind has a class of its own below it, which gives the fold of its log and says what its pipelines are bound to.
    """

    elsewhere: ClassVar[FindingKind]
    """What it is called that a pipeline is bound to another `fingerprint` than this host has."""

    def __init__(self, pipeline: P, fold: Fold[S], rules: Rules = ALL, *, made_by: str = "") -> None:
        """Connect. Writes nothing. `made_by` names the Dagster run that this is for.

        Raises Unreachable or ConfigError naming the part.
        """
        settings = pipeline.kafka.properties
        self.pipeline = pipeline
        self.rules = rules
        self.made_by = made_by
        self.bound: PipelineBound | None = None
        self.answer: str | None = None
        self.admin = clients.admin(settings)
        # A run of Dagster's that gave up for a busy machine would be a red one, and the next comes half a minute later.
        self.cluster_id = str(cluster(self.admin, settings, silent_s=PATIENT_S if made_by else 0.0).cluster_id)
        self.log = ControlLog(
            settings, pipeline.control_topic, fold, admin=self.admin, pipeline_file=str(pipeline.path), rules=rules
        )
        self.group = SourceGroup(settings, pipeline.group, rules)
        self.publisher = Publisher(
            settings, transactional_id=pipeline.transactional_id, group=self.group, log=self.log, rules=rules
        )

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What the pipeline is bound to beside cluster and control topic, the same on every host and without secrets:
        for a sink its catalog.
        """

    @abstractmethod
    def source_partitions(self) -> list[TopicPartition]:
        """The partitions that the pipeline's positions are of, as they are now."""

    def needed(self, tell: OnProgress) -> Needed:  # noqa: ARG002 - that of a kind that looks at more than the log does
        """What must stay of the log, as it was read, and what stands for the rest."""
        return Needed((), lambda below: [checkpoint_of(self.log.state, delete_below=below)])

    def keep_alive(self) -> int:
        """As `Publisher.keep_alive`."""
        return self.publisher.keep_alive()

    def give_up(self) -> tuple[str, ...]:
        """End what dead runs have left in progress; the ids of those batches. As `Publisher.give_up`."""
        return self.publisher.give_up().batch_ids

    @property
    def pipeline_id(self) -> str:
        """As the log has it: one that was made anew while this process ran may have another."""
        if self.bound is None:
            raise ConfigError(
                f"pipeline {self.pipeline.config.name} has not run yet", hint="calve run FILE", code=Code.NOT_RUN_YET
            )
        return (self.log.state.bound or self.bound).pipeline_id

    def read_only(self) -> bool:
        """Read the control log if it exists; False if the pipeline has never run."""
        if not self.log.open(create=False):
            return False
        self.bound = self._first_read().bound
        return True

    def _first_read(self) -> S:
        """The log as of now; `answer` stays the one that it held when this process read it first."""
        state = self.log.refresh()
        if self.answer is None:
            self.answer = state.answer
        return state

    def bind_published(self) -> None:
        """Bind a pipeline for what reads again what it published. Raises ConfigError before anything is bound if it has
        never run; else as `bind`.
        """
        self.read_only()
        _ = self.pipeline_id
        self.bind()

    def bind(self) -> PipelineBound:
        """Bind the pipeline at first use, and compare with the binding ever after.

        Append, read back, the first in the log wins: two first runs agree on one UUID. Raises FindingError when the
        binding names another cluster, control topic or `fingerprint`; nothing has been fenced by then. Raises
        ConfigError for a pipeline to take over that is not there: a new one in its place would read everything again.
        """
        taken_over = self.pipeline.config.takes_over
        if not self.log.open(create=taken_over is None):
            raise ConfigError(
                f"takes_over: pipeline {taken_over} has never run here: there is no topic {self.log.topic}",
                hint="correct the name, or leave takes_over out: the pipeline then begins at source.start",
                code=Code.TAKES_OVER,
            )
        state = self._first_read()
        mine = self.new_binding()
        if state.bound is None:
            found = self.group.positions(self.source_partitions())
            # Positions that are there now may be those of a first run that has bound the pipeline meanwhile.
            state = self.log.refresh_to_end()
            finding = checks.truncated(state, self.log.topic) or checks.lost_log(found, state, self.log.topic)
            if finding:
                raise finding.error(str(self.pipeline.path))
            self.log.append(mine)
            reach("bind.after-append")
            state = self.log.refresh_to_end()
        finding = checks.truncated(state, self.log.topic)
        if finding:
            raise finding.error(str(self.pipeline.path))
        self.check_bound()
        self.bound = state.bound or mine
        return self.bound

    def other_binding(self) -> Finding | None:
        """That by what was read of the log the pipeline is another host's: of another catalog, say."""
        bound, published = self.log.state.bound, self.log.state.last_publish is not None
        if bound is None:
            return None
        return checks.binding(bound, self.new_binding(), elsewhere=self.elsewhere, published=published)

    def check_bound(self) -> None:
        """Raise FindingError for `other_binding`."""
        if finding := self.other_binding():
            raise finding.error(str(self.pipeline.path))

    def rebinding(self) -> list[PipelineBound]:
        """What a bootstrap says besides where a try that published nothing has bound it to another `fingerprint`."""
        bound, mine = self.log.state.bound, self.new_binding()
        if bound is None or bound.fingerprint == mine.fingerprint:
            return []
        return [replace(mine, pipeline_id=bound.pipeline_id)]

    def new_binding(self) -> PipelineBound:
        """What this host has, under a pipeline id of its own."""
        return PipelineBound(
            pipeline_id=str(uuid.uuid4()),
            pipeline=self.pipeline.config.first_name,
            deployment=self.pipeline.deployment,
            fingerprint=self.fingerprint,
            cluster_id=self.cluster_id,
            control_topic_id=self.log.topic_id,
        )

    def close(self) -> None:
        self.log.close()
        self.group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


AnyPlane = ControlPlane[Any, Any]
"""The control plane of a pipeline of any kind."""

"""The opened parts of one pipeline: Kafka, control log, catalog. Every command and every Dagster op starts here."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import Catalog

from sink_core.commit.coordinator import Coordinator
from sink_core.commit.findings import Identity
from sink_core.commit.others import Others, Reading
from sink_core.commit.properties import SummaryKeys
from sink_core.commit.table import TableCommitter
from sink_core.config.effective import Pipeline
from sink_core.control import checks
from sink_core.control.events import PipelineBound
from sink_core.control.group import SourceGroup
from sink_core.control.log import ControlLog
from sink_core.control.publisher import Publisher
from sink_core.errors import ConfigError
from sink_core.failpoints import reach
from sink_core.kafka import clients
from sink_core.kafka.clients import ADMIN_TIMEOUT_S
from sink_core.kafka.source import SAMPLE_RECORDS, cluster_id, describe_topics, sample_values
from sink_core.offsets import OffsetRange, TopicPartition
from sink_core.tables.catalog import open_catalog


@dataclass(slots=True)
class Session:
    """Use as a context manager. `bound` is set once `bind` has been called."""

    pipeline: Pipeline
    admin: AdminClient
    log: ControlLog
    group: SourceGroup
    catalog: Catalog
    cluster_id: str
    publisher: Publisher
    others: Others
    bound: PipelineBound | None = None

    @classmethod
    def open(cls, pipeline: Pipeline) -> Session:
        """Connect. Writes nothing. Raises Unreachable or ConfigError naming the part."""
        settings = pipeline.kafka.properties
        admin = clients.admin(settings)
        cluster = cluster_id(admin, timeout_s=ADMIN_TIMEOUT_S)
        log = ControlLog(settings, pipeline.control_topic, admin=admin, pipeline_file=str(pipeline.path))
        group = SourceGroup(settings, pipeline.group)
        publisher = Publisher(settings, transactional_id=pipeline.transactional_id, group=group, log=log)
        catalog = open_catalog(pipeline.catalog)
        return cls(pipeline, admin, log, group, catalog, cluster, publisher, Others(catalog, pipeline.group, cluster))

    @property
    def keys(self) -> SummaryKeys:
        return SummaryKeys(self.pipeline.config.first_name, self.pipeline.control_topic, self.pipeline.group)

    @property
    def identity(self) -> Identity:
        return Identity(self.log.topic_id, self.cluster_id)

    @property
    def pipeline_id(self) -> str:
        """As the log has it: one that was made anew while this process ran may have another."""
        if self.bound is None:
            raise ConfigError(f"pipeline {self.pipeline.config.name} has not run yet", hint="calve run FILE")
        return (self.log.state.bound or self.bound).pipeline_id

    def committer(self, first_reading: Callable[[], Reading] | None = None) -> TableCommitter:
        """`first_reading` as in `TableCommitter`."""
        return TableCommitter(
            self.catalog,
            self.pipeline.tag,
            self.keys,
            self.identity,
            self.log,
            str(self.pipeline.path),
            self.pipeline.ledger_table,
            self.others,
            first_reading,
        )

    def coordinator(self) -> Coordinator:
        return Coordinator(self.log, self.committer())

    def sample_values(self) -> list[bytes]:
        """Values of some records of the source topics, from which the columns of a new table can be inferred."""
        topics, settings = self.pipeline.config.source.topics, self.pipeline.kafka.properties
        return sample_values(settings, topics, SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S)

    def sample_waiting(self, ranges: Sequence[OffsetRange]) -> list[bytes]:
        """Values of some records at the beginnings of `ranges`."""
        starts: dict[str, dict[int, int]] = {}
        for part in ranges:
            if part.span:
                starts.setdefault(part.topic, {})[part.partition] = part.start
        return sample_values(
            self.pipeline.kafka.properties, starts, SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S, starts=starts
        )

    def read_only(self) -> bool:
        """Read the control log if it exists; False if the pipeline has never run."""
        if not self.log.open(create=False):
            return False
        self.bound = self.log.refresh().bound
        return True

    def bind(self) -> PipelineBound:
        """Bind the pipeline at first use, and compare with the binding ever after.

        Append, read back, the first in the log wins: two first runs agree on one UUID. Raises FindingError when the
        binding names another catalog, cluster or control topic; nothing has been fenced by then. Raises ConfigError for
        a pipeline to take over that is not there: a new one in its place would read everything again.
        """
        taken_over = self.pipeline.config.takes_over
        if not self.log.open(create=taken_over is None):
            raise ConfigError(
                f"takes_over: pipeline {taken_over} has never run here: there is no topic {self.log.topic}",
                hint="correct the name, or leave takes_over out: the pipeline then begins at source.start",
            )
        state = self.log.refresh()
        mine = self.new_binding()
        if state.bound is None:
            found = self.group.positions(self._source_partitions())
            # Positions that are there now may be those of a first run that has bound the pipeline meanwhile.
            state = self.log.refresh_to_end()
            finding = checks.truncated(state, self.log.topic) or checks.lost_log(found, state, self.log.topic)
            if finding:
                raise finding.error(str(self.pipeline.path))
            self.log.append(mine)
            reach("bind.after-append")
            state = self.log.refresh_to_end()
        finding = checks.truncated(state, self.log.topic) or checks.binding(state.bound or mine, mine)
        if finding:
            raise finding.error(str(self.pipeline.path))
        self.bound = state.bound or mine
        return self.bound

    def _source_partitions(self) -> list[TopicPartition]:
        topics = describe_topics(self.admin, self.pipeline.config.source.topics, timeout_s=ADMIN_TIMEOUT_S)
        return [at for topic in topics.values() for at in topic.all_partitions]

    def new_binding(self) -> PipelineBound:
        """What this host has, under a pipeline id of its own."""
        return PipelineBound(
            pipeline_id=str(uuid.uuid4()),
            pipeline=self.pipeline.config.first_name,
            deployment=self.pipeline.deployment,
            catalog_fingerprint=self.pipeline.catalog_fingerprint,
            cluster_id=self.cluster_id,
            control_topic_id=self.log.topic_id,
        )

    def close(self) -> None:
        self.log.close()
        self.group.close()
        self.catalog.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""The opened parts of one pipeline: Kafka, control log, tables. Every command and every Dagster op starts here."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from types import TracebackType

from confluent_kafka.admin import AdminClient
from pyiceberg.schema import Schema

from calve.sink_core import findings
from calve.sink_core.config.sink_pipeline import SinkPipeline, check_number
from calve.sink_core.config.table_formats import ICEBERG, TABLE_FORMATS
from calve.sink_core.control import checks
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.publisher import Publisher
from calve.sink_core.error_codes.files import NOT_RUN_YET, TAKES_OVER
from calve.sink_core.errors import CalveError, ConfigError
from calve.sink_core.failpoints import reach
from calve.sink_core.finding import Finding
from calve.sink_core.iceberg.commit.findings import Identity
from calve.sink_core.iceberg.commit.other_pipelines import Coverage
from calve.sink_core.iceberg.commit.properties import SummaryKeys
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.iceberg.create.tables import columns_shown, ensure_tables
from calve.sink_core.iceberg.format.lake import IcebergLake
from calve.sink_core.iceberg.handles import Catalog
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.first_contact import PATIENT_S, cluster
from calve.sink_core.kafka.source import SAMPLE_RECORDS, describe_topics, sample_values, topics_like
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.sink.loop.coordinator import Coordinator
from calve.sink_core.sink.loop.engine import Engine, InProcess
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import Lake, LoadedTable, Opening
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState


@dataclass(slots=True)
class Session:
    """Use as a context manager. `bound` is set once `bind` has been called, which `read_only` takes the place of;
    `pipeline` knows topics and tables found at run time from then on. `engine` runs tasks.
    """

    pipeline: SinkPipeline
    admin: AdminClient
    log: ControlLog[CommitState]
    group: SourceGroup
    cluster_id: str
    publisher: Publisher[CommitState]
    engine: Engine
    rules: Rules = ALL
    bound: PipelineBound | None = None
    made_by: str = ""
    lakes: dict[str, Lake] = field(default_factory=dict[str, Lake])

    @classmethod
    def open(
        cls, pipeline: SinkPipeline, rules: Rules = ALL, *, engine: Engine | None = None, made_by: str = ""
    ) -> Session:
        """Connect. Writes nothing. Snapshots say who made them. Without an `engine` tasks run here, and nothing merges.

        Raises Unreachable or ConfigError naming the part.
        """
        engine = engine or InProcess()
        settings = pipeline.kafka.properties
        admin = clients.admin(settings)
        # A run of Dagster's that gave up for a busy machine would be a red one, and the next comes half a minute later.
        cluster_id = str(cluster(admin, settings, silent_s=PATIENT_S if made_by else 0.0).cluster_id)
        log = ControlLog(
            settings, pipeline.control_topic, SINK, admin=admin, pipeline_file=str(pipeline.path), rules=rules
        )
        group = SourceGroup(settings, pipeline.group, rules)
        publisher = Publisher(settings, transactional_id=pipeline.transactional_id, group=group, log=log, rules=rules)
        session = cls(pipeline, admin, log, group, cluster_id, publisher, engine, rules, made_by=made_by)
        session._lake(ICEBERG)
        return session

    @property
    def lake(self) -> IcebergLake:
        """That of ledger, dead letters and tables in Iceberg."""
        lake = self._lake(ICEBERG)
        assert isinstance(lake, IcebergLake)
        return lake

    @property
    def catalog(self) -> Catalog:
        return self.lake.catalog

    @property
    def keys(self) -> SummaryKeys:
        return self.lake.keys

    @property
    def identity(self) -> Identity:
        return self.lake.identity

    def lake_of(self, table: str) -> Lake:
        """Where a table of the pipeline is, opened when it is needed. Raises Unreachable or ConfigError."""
        return self._lake(self.pipeline.format_of(table))

    def _lake(self, name: str) -> Lake:
        if name not in self.lakes:
            make: Callable[[Opening], Lake] = resolve_name(TABLE_FORMATS[name].make)
            self.lakes[name] = make(
                Opening(
                    lambda: self.pipeline,
                    self.log,
                    self.cluster_id,
                    lambda: self.engine.merge,
                    self.rules,
                    self.made_by,
                )
            )
        return self.lakes[name]

    @property
    def pipeline_id(self) -> str:
        """As the log has it: one that was made anew while this process ran may have another."""
        if self.bound is None:
            raise ConfigError(
                f"pipeline {self.pipeline.config.name} has not run yet", hint="calve run FILE", code=NOT_RUN_YET
            )
        return (self.log.state.bound or self.bound).pipeline_id

    def committer(self, first_coverage: Callable[[], Coverage] | None = None) -> TableCommitter:
        """`first_coverage` as in `TableCommitter`."""
        return self.lake.committer(first_coverage)

    def coordinator(self) -> Coordinator:
        return Coordinator(self.log, self.commits)

    def commits(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        """What became of each table by a commit of what is published and pending."""
        for lake, its in self._by_lake(names):
            yield from lake.commit(its)

    def load(self, names: Collection[str]) -> dict[str, LoadedTable | None]:
        """Tables as they are now, compared with the log; None for one that neither exists nor is in the log. Raises
        what stands against the first.
        """
        loaded: dict[str, LoadedTable | None] = {}
        for lake, its in self._by_lake(names):
            for name, found in lake.load(its):
                if isinstance(found, CalveError):
                    raise found
                loaded[name] = found
        return loaded

    def check_tables(self, first_coverage: Callable[[], Coverage]) -> None:
        """Raise what stands against a table of the pipeline. `first_coverage` as in `TableCommitter`."""
        committer = self.committer(first_coverage)
        for name in self.pipeline.table_names:
            if self.pipeline.format_of(name) == ICEBERG:
                committer.load_checked(name)
            else:
                self.load([name])

    def _by_lake(self, names: Collection[str]) -> Iterator[tuple[Lake, list[str]]]:
        of = defaultdict[str, list[str]](list)
        for name in names:
            of[self.pipeline.format_of(name)].append(name)
        for name, its in of.items():
            yield self._lake(name), its

    def source_topics(self) -> tuple[str, ...]:
        """The topics to read as they are now; `pipeline` then knows them, and the tables that they and the log tell of.

        One question to the cluster if the pipeline file does not list them all, else none.
        """
        if self.pipeline.is_open:
            pattern = self.pipeline.config.source.topics_regex
            matched = topics_like(self.admin, pattern, timeout_s=ADMIN_TIMEOUT_S) if pattern else ()
            state = self.log.state
            self.pipeline = self.pipeline.having(matched, {*self.pipeline.known_tables, *state.fed, *state.tables})
            for topic in self.pipeline.topics:
                self.pipeline.readings.of(topic)
        return self.pipeline.topics

    def sample_values(self, topics: Collection[str] | None = None) -> dict[str, list[bytes]]:
        """Values of some records of the source topics, or of some of them, by topic: the columns of a new table can be
        inferred from them.
        """
        wanted = [topic for topic in self.pipeline.topics if topics is None or topic in topics]
        return sample_values(self.pipeline.kafka.properties, wanted, SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S)

    def create_missing(self, names: Collection[str] = ()) -> None:
        """Create tables of the pipeline that are missing, or those of `names`; their columns are those of the topics
        that each is fed from. Raises as `ensure_tables` does.
        """
        by_topics = defaultdict[frozenset[str] | None, list[str]](list)
        settings = {table.name: table for table in self.pipeline.tables}
        for name in self.pipeline.table_names:
            if not names or name in names:
                by_topics[settings[name].rule.topics if name in settings else None].append(name)
        for topics, wanted in by_topics.items():
            sample = partial(self.sample_values, topics)
            own = [name for name in wanted if self.pipeline.format_of(name) == ICEBERG]
            if own:
                ensure_tables(self.catalog, self.pipeline, sample, names=own, topics=topics)
            shown = columns_shown(self.pipeline, sample, topics)
            for name in (name for name in wanted if name not in own):
                self.lake_of(name).create(settings[name], shown)

    def create_named(self, wanted: Mapping[str, Schema]) -> Iterator[str]:
        """Create the tables that records name, with these columns if `auto_create` names none, and know them from then
        on; gives the names.

        Raises ConfigError for more than `name_from.max_tables`, and as `ensure_table` does.
        """
        if not wanted:
            return
        pipeline = self.pipeline.having(self.pipeline.matched, {*self.pipeline.known_tables, *wanted})
        check_number(pipeline)
        for table in pipeline.tables:
            if table.name in wanted:
                self.lake_of(table.name).create(table, lambda name=table.name: wanted[name])
                yield table.name
        self.pipeline = pipeline

    def sample_waiting(self, ranges: Sequence[OffsetRange]) -> dict[str, list[bytes]]:
        """Values of some records at the beginnings of `ranges`, by topic."""
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
        self.source_topics()
        return True

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
        binding names another catalog, cluster or control topic; nothing has been fenced by then. Raises ConfigError for
        a pipeline to take over that is not there: a new one in its place would read everything again.
        """
        taken_over = self.pipeline.config.takes_over
        if not self.log.open(create=taken_over is None):
            raise ConfigError(
                f"takes_over: pipeline {taken_over} has never run here: there is no topic {self.log.topic}",
                hint="correct the name, or leave takes_over out: the pipeline then begins at source.start",
                code=TAKES_OVER,
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
        finding = checks.truncated(state, self.log.topic)
        if finding:
            raise finding.error(str(self.pipeline.path))
        self.check_bound()
        self.bound = state.bound or mine
        self.source_topics()
        return self.bound

    def other_binding(self) -> Finding | None:
        """That by what was read of the log the pipeline is another host's: of another catalog, say."""
        bound, published = self.log.state.bound, self.log.state.last_publish is not None
        if bound is None:
            return None
        return checks.binding(bound, self.new_binding(), elsewhere=findings.OTHER_CATALOG, published=published)

    def check_bound(self) -> None:
        """Raise FindingError for `other_binding`."""
        if finding := self.other_binding():
            raise finding.error(str(self.pipeline.path))

    def rebinding(self) -> list[PipelineBound]:
        """What a bootstrap says besides where a try that published nothing has bound it to another catalog."""
        bound, mine = self.log.state.bound, self.new_binding()
        if bound is None or bound.fingerprint == mine.fingerprint:
            return []
        return [replace(mine, pipeline_id=bound.pipeline_id)]

    def _source_partitions(self) -> list[TopicPartition]:
        topics = describe_topics(self.admin, self.source_topics(), timeout_s=ADMIN_TIMEOUT_S)
        return [at for topic in topics.values() for at in topic.all_partitions]

    def new_binding(self) -> PipelineBound:
        """What this host has, under a pipeline id of its own."""
        return PipelineBound(
            pipeline_id=str(uuid.uuid4()),
            pipeline=self.pipeline.config.first_name,
            deployment=self.pipeline.deployment,
            fingerprint=self.pipeline.catalog_fingerprint,
            cluster_id=self.cluster_id,
            control_topic_id=self.log.topic_id,
        )

    def close(self) -> None:
        self.log.close()
        self.group.close()
        for lake in self.lakes.values():
            lake.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

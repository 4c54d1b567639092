"""The opened parts of a sink: its control plane, and beside it the lakes that its tables are in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pkgutil import resolve_name

from pyiceberg.schema import Schema

from calve.sink_core import findings
from calve.sink_core.config.sink_pipeline import SinkPipeline, check_number
from calve.sink_core.config.table_formats import ICEBERG, TABLE_FORMATS
from calve.sink_core.control.checkpoint import Needed
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.control.plane import ControlPlane
from calve.sink_core.errors import CalveError
from calve.sink_core.iceberg.commit.other_pipelines import Coverage
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.iceberg.create.tables import columns_shown, ensure_tables
from calve.sink_core.iceberg.handles import Catalog
from calve.sink_core.iceberg.lake.opened import IcebergLake
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import (
    SAMPLE_RECORDS,
    Silent,
    control_topics_like,
    describe_topics,
    log_starts,
    sample_values,
    topics_like,
)
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.sink.loop.coordinator import Coordinator
from calve.sink_core.sink.loop.engine import Engine, InProcess
from calve.sink_core.sink.loop.needed import needed
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.format.lake import Lake, LoadedTable, Looked, Opening
from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState


class Session(ControlPlane[SinkPipeline, CommitState]):
    """The control plane of a sink and its lakes. `pipeline` knows topics and tables found at run time once it is bound
    or read. `engine` runs tasks.
    """

    elsewhere = findings.OTHER_CATALOG

    def __init__(self, pipeline: SinkPipeline, rules: Rules, engine: Engine, made_by: str) -> None:
        super().__init__(pipeline, SINK, rules, made_by=made_by)
        self.engine = engine
        self._lakes: dict[str, Lake] = {}
        self._lake(ICEBERG)

    @classmethod
    def open(
        cls, pipeline: SinkPipeline, rules: Rules = ALL, *, engine: Engine | None = None, made_by: str = ""
    ) -> Session:
        """Connect. Writes nothing. Snapshots say who made them. Without an `engine` tasks run here, and nothing merges.

        Raises Unreachable or ConfigError naming the part.
        """
        return cls(pipeline, rules, engine or InProcess(), made_by)

    @property
    def fingerprint(self) -> str:
        return self.pipeline.catalog_fingerprint

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
        if name not in self._lakes:
            make: Callable[[Opening], Lake] = resolve_name(TABLE_FORMATS[name].make)
            self._lakes[name] = make(
                Opening(
                    lambda: self.pipeline,
                    self.log,
                    self.cluster_id,
                    lambda: self.engine.merge,
                    self.rules,
                    self.made_by,
                )
            )
        return self._lakes[name]

    def committer(self, first_coverage: Callable[[], Coverage] | None = None) -> TableCommitter:
        """`first_coverage` as in `TableCommitter`."""
        return self.lake.committer(first_coverage)

    def coordinator(self) -> Coordinator:
        return Coordinator(self.log, self.commits)

    def commits(self, names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
        """What became of each table by a commit of what is published and pending."""
        for lake, its in self._by_lake(names):
            yield from lake.commit(its)

    def look(self, name: str, *, compare: bool = True) -> Looked:
        """A table as it is now, and what it contradicts the log by, unless there is none yet."""
        return self.lake_of(name).look(name, compare=compare)

    def load(self, names: Collection[str]) -> dict[str, LoadedTable | None]:
        """Tables as they are now, compared with the log; None for one that neither exists nor is in the log. Raises
        what stands against the first.
        """
        loaded: dict[str, LoadedTable | None] = {}
        for name, found in self.each_loaded(names):
            if isinstance(found, CalveError):
                raise found
            loaded[name] = found
        return loaded

    def each_loaded(self, names: Collection[str]) -> Iterator[tuple[str, LoadedTable | CalveError | None]]:
        """What became of loading each table, as `load` of a `Lake`."""
        for lake, its in self._by_lake(names):
            yield from lake.load(its)

    def check_table(self, name: str, first_coverage: Callable[[], Coverage]) -> LoadedTable | None:
        """A table, None if there is none. Raises what stands against it. `first_coverage` as in `TableCommitter`."""
        if self.pipeline.format_of(name) != ICEBERG:
            return self.load([name])[name]
        found = self.committer(first_coverage).load_checked(name)
        return self.lake.table(*found) if found else None

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

    def left_out(self) -> dict[str, str]:
        """Topics that `topics_regex` matches and that are not read, by name with why."""
        pattern = self.pipeline.config.source.topics_regex
        found = control_topics_like(self.admin, pattern, timeout_s=ADMIN_TIMEOUT_S) if pattern else ()
        return dict.fromkeys(found, "not read: it is a control topic")

    def sample_values(self, topics: Collection[str] | None = None) -> dict[str, list[bytes]]:
        """Values of some records of the source topics, or of some of them, by topic: the columns of a new table can be
        inferred from them. Topics and partitions that give no answer are not waited for.
        """
        wanted, silent = [t for t in self.pipeline.topics if topics is None or t in topics], Silent()
        described = describe_topics(self.admin, wanted, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        partitions = [at for topic in described.values() for at in topic.all_partitions]
        begins = log_starts(self.admin, partitions, timeout_s=ADMIN_TIMEOUT_S, silent=silent)
        whole = [OffsetRange(*at, begin, begin + 1) for at, begin in begins.items()]
        return {topic: list[bytes]() for topic in wanted} | self.sample_waiting(whole)

    def create_missing(self, names: Collection[str] = ()) -> None:
        """Create tables of the pipeline that are missing, or those of `names`. Raises what stands against the first."""
        for _, error in self.each_created(names or self.pipeline.table_names):
            if error is not None:
                raise error

    def each_created(self, names: Collection[str]) -> Iterator[tuple[str, CalveError | None]]:
        """What became of creating each table where it is missing, as `create` of a `Lake`; its columns are those of the
        topics that it is fed from.
        """
        by_topics = defaultdict[frozenset[str] | None, list[str]](list)
        settings = {table.name: table for table in self.pipeline.tables}
        for name in names:
            by_topics[settings[name].rule.topics if name in settings else None].append(name)
        for topics, wanted in by_topics.items():
            sample = partial(self.sample_values, topics)
            shown = columns_shown(self.pipeline, sample, topics)
            for name in wanted:
                try:
                    if name in settings:
                        self.lake_of(name).create(settings[name], shown)
                    else:
                        ensure_tables(self.catalog, self.pipeline, sample, names=[name])
                except CalveError as error:
                    yield name, error
                else:
                    yield name, None

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
                self._lake(table.format).create(table, lambda name=table.name: wanted[name])
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
        if not super().read_only():
            return False
        self.source_topics()
        return True

    def bind(self) -> PipelineBound:
        bound = super().bind()
        self.source_topics()
        return bound

    def source_partitions(self) -> list[TopicPartition]:
        topics = describe_topics(self.admin, self.source_topics(), timeout_s=ADMIN_TIMEOUT_S)
        return [at for topic in topics.values() for at in topic.all_partitions]

    def needed(self, tell: OnProgress) -> Needed:
        return needed(self.log.state, self.look, tell)

    def close(self) -> None:
        super().close()
        for lake in self._lakes.values():
            lake.close()
        # They look at the session, which no cycle may keep: its clients end with it.
        self._lakes.clear()

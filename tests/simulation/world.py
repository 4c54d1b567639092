"""A small world that the real code runs in: source topic, cluster, catalog, files, and the processes in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.events import Event
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import FindingError, ProtocolError, RetriableError, TableUnusable
from calve.sink_core.iceberg.files.kafka_rows import Runs
from calve.sink_core.iceberg.format.table import iceberg
from calve.sink_core.iceberg.format.target import iceberg_target
from calve.sink_core.iceberg.replace.head_files import HeadFile
from calve.sink_core.iceberg.write.rewrite import Rewritten
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.sink.ledger.rows import LedgerRow, with_former
from calve.sink_core.sink.loop.engine import InProcess
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.rewrite import RewriteSpec
from calve.sink_core.sink.resolve.accounts import Accounts, fold
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.sink.write.task import TaskResult
from calve.sink_core.tables.batch import BatchPlan, ManifestRef, TableOutput, WrittenBatch
from calve.sink_core.tables.format.lake import LoadedTable
from tests.simulation.broker import Cluster
from tests.simulation.clients import Network
from tests.simulation.endings import OLD, judge
from tests.simulation.oracle import BAD, GAP, TOPIC, Batch, Oracle
from tests.simulation.scheduler import Process
from tests.simulation.stage import Stage
from tests.simulation.storage import NO_BUGS, CatalogBug, DataFile, FileStore, ListedFile, Manifest, Row, SimCatalog

STALE = "stale "
"""Begins the names of processes on hosts whose pipeline file does not have the table that was added."""

ADDED = "db.added"
"""The table that is added to the pipeline in some histories, with `history: replay`."""

GROUP_IN_USE = "group in use"
"""What a run stops on that finds positions in the group and nothing else of the pipeline: no finding."""


@dataclass(frozen=True)
class Tasks(InProcess):
    """The world's engine: what tasks write are modelled files."""

    tasks: int = 2
    world: World | None = None

    def write(self, spec: IngestSpec, tasks: Sequence[Sequence[OffsetRange]]) -> list[TaskResult]:
        assert self.world is not None
        return self.world.run_tasks(spec, tasks)


class World(Stage):
    """One history's world. `pipelines` are the file as it is at first, and with a table added; `pipeline` is the one in
    effect. `stopped_on` are findings, with their subjects, that processes have ended with; `saved` and `dropped` are
    catalog entries that users have put aside. Batches are merged into the tables in `merged`.
    """

    def __init__(
        self,
        seed: int,
        pipelines: tuple[SinkPipeline, SinkPipeline],
        rules: Rules = ALL,
        bugs: Set[CatalogBug] = NO_BUGS,
    ) -> None:
        super().__init__(seed, rules)
        self.pipelines = pipelines
        self.pipeline = pipelines[0]
        self.stopped_on: set[tuple[str, str]] = set()
        self.saved: dict[str, TableMetadata] = {}
        self.dropped: dict[str, TableMetadata] = {}
        self.cluster = Cluster(self.new_id, self.now_ms)
        self.network = Network(self.scheduler, self.cluster, self.fate)
        self.store = FileStore(self.now_ms)
        self.catalog = SimCatalog(self.scheduler, self.store, self.fate, self.cluster.pending, bugs, self.delete_file)
        self.oracle = Oracle(self.pipeline, self.cluster, self.catalog, self.note)
        self.cluster.create_topic(TOPIC, 2, {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"})
        self.merged = frozenset[str]()
        self._records = 0
        self._places: dict[int, tuple[TopicPartition, int]] = {}

    def did(self, deed: str, subject: str) -> None:
        """Others have done something that a pipeline may have to stop on."""
        self.oracle.deeds.add((deed, subject))
        self.outcomes[f"deed: {deed}"] += 1
        self.note(f"SOMEBODY did {deed}: {subject}")

    def session(self) -> Session:
        process = self.scheduler.current
        stale = process is not None and process.name.startswith(STALE)
        return Session.open(self.pipelines[0] if stale else self.pipeline, self.rules, engine=Tasks(world=self))

    def add_table(self) -> None:
        """The pipeline's file has one more table from here on."""
        self.pipeline = self.oracle.pipeline = self.pipelines[1]
        self.note("USER adds a table")

    def ended(self, process: Process) -> None:
        super().ended(process)
        error = process.error
        if error is None:
            return
        if isinstance(error, FindingError):
            self.outcomes[f"finding: {error.finding}"] += 1
            self.stopped_on.add((error.finding, error.subject))
        elif "positions that no publish of this pipeline put there" in str(error):
            self.stopped_on.add((GROUP_IN_USE, self.pipeline.group))
        judge(process.name, error, self.oracle.deeds)

    def fingerprint(self) -> object:
        """What a pipeline that is caught up does not change any more."""
        heads = tuple((name, str(m.table_uuid), m.current_snapshot_id) for name, m in self.catalog.tables.items())
        positions = tuple(sorted(self.cluster.groups.get(self.pipeline.group, {}).items()))
        return heads, positions

    def produce(self, partition: int, kind: str) -> None:
        self._records += 1
        self._places[self._records] = TopicPartition(TOPIC, partition), self.cluster.log((TOPIC, partition)).end
        self.cluster.append((TOPIC, partition), None if kind == GAP else (kind, self._records))

    def delete_file(self, path: str) -> None:
        self.store.delete(path)
        self.oracle.check_deleted(path)

    def write_batch(
        self, plan: BatchPlan, *, pipeline: SinkPipeline, tables: Mapping[str, LoadedTable], **others: object
    ) -> WrittenBatch:
        """In place of Spark: the same effects in the same order, on modelled files."""
        del pipeline, others
        batch = self.oracle.batches[plan.batch_id] = Batch(plan, {name: [] for name in tables}, {})
        batch.counts = [self._read(part, batch) for part in plan.ranges if part.span]
        files = {name: self._write(plan.batch_id, name, rows) for name, rows in batch.rows.items()}
        self.reach("write.after-files")
        outputs = [self.output_of(plan.batch_id, name, iceberg(table), files[name]) for name, table in tables.items()]
        self.reach("write.after-manifests")
        return WrittenBatch(plan, tuple(outputs), tuple(batch.counts))

    def write_ledger(self, plan: BatchPlan, counts: Sequence[PartitionCounts], table: Any) -> list[str]:
        """The only file of a batch that reads nothing."""
        name = ".".join(table.name())
        rows: list[Row] = [("ledger", plan.batch_id, c.partition) for c in counts]
        self.oracle.batches[plan.batch_id] = Batch(plan, {name: rows}, {}, list(counts))
        return self._write(plan.batch_id, name, rows)

    def batches_in(self, ledger: Any) -> set[str]:
        """Those of which the head, as it was loaded, has rows."""
        metadata = ledger.metadata
        head = metadata.snapshot_by_id(metadata.current_snapshot_id) if metadata.current_snapshot_id else None
        try:
            return {batch_id for path in self.store.data_files(head) for _, batch_id, *_ in self.store.rows(path)}
        except FileNotFoundError as error:
            raise TableUnusable(f"{'.'.join(ledger.name())}: {error} is gone") from error

    def ledger_of(self, table: Any, manifests: Sequence[ManifestRef], _prefix: str) -> list[ManifestRef]:
        """The files that the manifests name as files of the ledger that was created again."""
        if not manifests:
            return []
        name, batch_id = ".".join(table.name()), f"rebuilt-{self.new_id()}"
        self.oracle.batches[batch_id] = Batch(None, {}, {})
        try:
            paths = [path for ref in manifests for path in self.store.manifest(ref.path).files]
            rows = [row for path in paths for row in self.store.rows(path)]
        except FileNotFoundError as error:
            raise TableUnusable(f"{name}: {error} is gone") from error
        return [self._manifest(batch_id, name, table, self._write(batch_id, name, rows), len(rows), "")]

    def run_tasks(self, spec: IngestSpec, tasks: Sequence[Sequence[OffsetRange]]) -> list[TaskResult]:
        """Reads ranges again for the one table of `spec`."""
        name = spec.tables[0].name
        batch = self.oracle.batches[spec.batch_id] = Batch(None, {table: [] for table in self.pipeline.table_names}, {})
        counts = [self._read(part, batch) for task in tasks for part in task]
        files: Any = {name: tuple(self._write(spec.batch_id, name, batch.rows[name]))}
        return [TaskResult(files, tuple(counts))]

    def holds(self, file: ListedFile, runs: Runs) -> bool:
        """Whether a data file has rows of the ranges. As in tables, the id of their topic is not in them."""
        return any(self._is_of(row, runs) for row in self.store.described[file.file_path])

    def _is_of(self, row: Row, runs: Runs) -> bool:
        if row[0] != "record":
            return False
        at, offset = self._places[row[1]]
        return any(start <= offset < end for start, end in runs.get(at, ()))

    def rewrite(self, spec: RewriteSpec, files: Sequence[HeadFile]) -> list[Rewritten]:
        """The files written again without the rows of the ranges."""
        done: list[Rewritten] = []
        for number, file in enumerate(files):
            try:
                rows = self.store.rows(file.path)
            except FileNotFoundError as error:
                raise RetriableError(f"{iceberg_target(spec.target).name}: {error} is gone") from error
            kept = [row for row in rows if not self._is_of(row, spec.runs)]
            written: Any = self._write(f"{spec.batch_id}-kept-{number}", iceberg_target(spec.target).name, kept)
            done.append(Rewritten(file.path, len(rows) - len(kept), tuple(written)))
        return done

    def ledger_rows(self, session: Session) -> list[LedgerRow]:
        """What the ledger holds, and what is published for it and not committed yet."""
        name = self.pipeline.ledger_table
        session.committer().load_checked(name)
        held = [batch_id for _, batch_id, *_ in self.catalog.rows(name)] if name in self.catalog.tables else []
        on_their_way = [logged.event.batch_id for logged in session.log.state.written.get(name, [])]
        known = [self.oracle.batches[batch_id] for batch_id in dict.fromkeys([*held, *on_their_way])]
        rows = (
            LedgerRow(b.plan.batch_id, *_ledger_values(c), c.written, b.plan.topic_ids[c.topic])
            for b in known
            if b.plan is not None
            for c in b.counts
        )
        last = session.log.state.last_publish
        return list(with_former(rows, last.topic_ids if last else {}))

    def accounts(self, ledger: Any, dead_letter_table: str) -> Accounts:
        """What the ledger's head holds."""
        held = self.batches_in(ledger)
        rows = [
            {
                "batch_id": plan.batch_id,
                "planned_at": plan.broker_time_ms,
                "topic": c.topic,
                "topic_id": plan.topic_ids[c.topic],
                "partition": c.partition,
                "start_offset": c.start,
                "end_offset": c.end,
                "dead_lettered": c.dead_lettered,
                "written": c.written,
            }
            for batch_id in held
            if (plan := (batch := self.oracle.batches[batch_id]).plan) is not None
            for c in batch.counts
        ]
        return fold(rows, dead_letter_table)

    def _write(self, batch_id: str, name: str, rows: Sequence[Row]) -> list[str]:
        """A batch has several files of a table if several tasks wrote it."""
        half, paths = len(rows) // 2 if len(rows) > 3 else 0, list[str]()
        for piece in (rows[:half], rows[half:]):
            if piece:
                self.scheduler.give_way()
                path = f"sim:///{name}/data/{batch_id}-{len(paths)}.parquet"
                paths.append(self.store.write(path, DataFile(tuple(piece))))
        return paths

    def _read(self, part: OffsetRange, batch: Batch) -> PartitionCounts:
        self.scheduler.give_way()
        log = self.cluster.log(part.at)
        if part.start < log.start or part.end > log.end:
            raise RetriableError(f"{part} is not in the log [{log.start}, {log.end})")
        tables = [table.name for table in self.pipelines[1].tables if table.name in batch.rows]
        counts = PartitionCounts(part.topic, part.partition, part.start, part.end, timestamp_type=2)
        counts.written = dict.fromkeys(tables, 0)
        for record in log.records[part.start : part.end]:
            if not isinstance(record.value, tuple):
                counts.gaps += 1
                continue
            kind, number = record.value
            counts.records += 1
            counts.value_bytes += 10
            counts.max_timestamp_ms = max(counts.max_timestamp_ms, record.timestamp_ms)
            if kind == BAD:
                counts.dead_lettered += 1
                batch.rows[self.pipeline.dead_letter_table].append(("letter", number))
                continue
            for table in tables:
                counts.written[table] += 1
                batch.rows[table].append(("record", number))
        if batch.plan is not None:
            batch.rows[self.pipeline.ledger_table].append(("ledger", batch.plan.batch_id, part.partition))
        return counts

    def output_of(self, batch_id: str, name: str, table: Any, files: Sequence[str]) -> TableOutput:
        # A batch that passes over nothing has no file, and nobody has heard of it until here.
        batch = self.oracle.batches.setdefault(batch_id, Batch(None, {name: []}, {}))
        return self._output(batch_id, name, table, files, len(batch.rows[name]), "")

    def kept_of(self, batch_id: str, name: str, table: Any, files: Sequence[str]) -> TableOutput:
        """Of the rows that a replay leaves as they are."""
        rows = sum(len(self.store.described[path]) for path in files)
        return self._output(batch_id, name, table, files, rows, "-kept")

    def gone_of(self, batch_id: str, table: Any, _spec_id: int, gone: Sequence[ListedFile]) -> ManifestRef:
        """Names the files that a replay takes out."""
        name, paths = ".".join(table.name()), [file.file_path for file in gone]
        return self._manifest(
            batch_id, name, table, paths, sum(len(self.store.described[path]) for path in paths), "-gone"
        )

    def _output(
        self, batch_id: str, name: str, table: Any, files: Sequence[str], rows: int, suffix: str
    ) -> TableOutput:
        metadata = table.metadata
        uuid = str(metadata.table_uuid)
        needed = self.oracle.batches[batch_id].files.setdefault(name, [])
        needed += files
        if not files:
            return TableOutput(name, uuid, metadata.current_schema_id)
        refs = [self._manifest(batch_id, name, table, files, rows, suffix)]
        if name in self.merged and self.oracle.batches[batch_id].plan is not None:
            # Changes have keys beside their rows.
            refs.append(replace(self._manifest(batch_id, name, table, (), 0, "-keys"), content=1))
        return TableOutput(name, uuid, metadata.current_schema_id, tuple(refs))

    def _manifest(
        self, batch_id: str, name: str, table: Any, files: Sequence[str], rows: int, suffix: str
    ) -> ManifestRef:
        self.scheduler.give_way()
        path = self.store.write(f"sim:///{name}/metadata/calve-{batch_id}{suffix}.avro", Manifest(tuple(files)))
        self.oracle.batches[batch_id].files.setdefault(name, []).append(path)
        return ManifestRef(path, 1, "", 0, table.metadata.default_spec_id, len(files), rows, rows, ())

    def read_event(self, event: Event) -> Event:
        """As `decode` does on a host of the first version."""
        process = self.scheduler.current
        if process is not None and process.name.startswith(OLD) and event.min_reader > 1:
            raise ProtocolError(f"event {event.event_type} needs reader version {event.min_reader}")
        return event


def _ledger_values(c: PartitionCounts) -> tuple[Any, ...]:
    counted = (c.records, c.gaps, c.tombstones, c.filtered, c.dead_lettered, c.value_bytes, c.lost)
    return (c.topic, c.partition, c.start, c.end, *counted)


def pipeline_files(directory: Path) -> tuple[Path, Path]:
    """The pipeline of all histories, and the same with a table added, written below `directory`."""
    (directory / "connections.yaml").write_text(
        "deployment: sim\n"
        "kafka: {main: {bootstrap.servers: simulated}}\n"
        "catalog: {lake: {type: sql, uri: 'sqlite://', warehouse: 'sim:///'}}\n"
        "spark: {none: {master: 'local[1]'}}\n"
    )
    first, added = directory / "pipeline.yaml", directory / "added.yaml"
    one = "{name: db.t, auto_create: {columns: {id: long}}}"
    other = f"{{name: {ADDED}, auto_create: {{columns: {{id: long}}}}, history: replay}}"
    for path, tables in ((first, one), (added, f"{one}, {other}")):
        path.write_text(
            f"name: p\nsource: {{kafka: main, topics: [{TOPIC}]}}\ncatalog: lake\nspark: none\n"
            f"tables: [{tables}]\nbatch: {{max_records: 6}}\n"
        )
    return first, added

"""What Calve asks of Hudi's Java client: to create a table, and to complete an instant. Effects only.

The order of a commit's calls is found by trying, and each is needed (`preWrite`, else an added column is refused as a
concurrent change of the schema; `initTable` after the commit, else the metadata table only grows, and before it a fresh
JVM fails once where that table is due for compaction).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calve.sink_core.config.tables import HudiType
from calve.sink_core.hudi.changes.settings import BY_COMMIT, BY_EVENT
from calve.sink_core.hudi.files.staged import HudiFile
from calve.sink_core.hudi.java.jvm import Check, Jvm
from calve.sink_core.iceberg.create.tables import CREATED_BY

TABLE_VERSION = "9"
UUID = "calve.table.uuid"
"""A property of the table: Hudi's have no id of their own."""

_SCHEMA = "hoodie.avro.schema"

_ACTIONS: Mapping[HudiType, str] = {"copy_on_write": "commit", "merge_on_read": "deltacommit"}

WRITES = {
    "hoodie.metadata.enable": "true",
    # Statistics of columns cost three times as much as the rest of a commit. Where another writer has begun with them
    # the first tries fail, and drop them.
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    # A batch's pending instant stays until it is completed, whoever is asleep.
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    # Between processes there is the lock file (`jvm.locked`).
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.auto.upgrade": "false",
}


def carrying(keys: Sequence[str]) -> dict[str, str]:
    """Has later commits of any writer repeat these keys of what a commit says."""
    return {"hoodie.write.rolling.metadata.keys": ",".join(keys)}


def key_generator(key: Sequence[str], partitions: Sequence[str]) -> str:
    """Hudi's name of what makes record keys and partitions of rows."""
    if not partitions:
        return "NON_PARTITION"
    return "SIMPLE" if len(partitions) == 1 and len(key) <= 1 else "COMPLEX"


def action_of(table_type: HudiType) -> str:
    """What an append to such a table is called in its timeline."""
    return _ACTIONS[table_type]


def table_type_of(properties: Mapping[str, str]) -> HudiType:
    return "merge_on_read" if properties.get("hoodie.table.type") == "MERGE_ON_READ" else "copy_on_write"


@dataclass(frozen=True, slots=True)
class NewHudiTable:
    """A table to be created; `schema` as Avro, partitioned by the values of `partitions`. If records change its rows,
    by which columns these are told apart, and by which they are ordered, if not by commits.
    """

    name: str
    uuid: str
    schema: str
    table_type: HudiType
    partitions: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    order: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """An instant that is to be completed: with these files, the `schema` that the table then has (as Avro), and what
    the commit says of itself. `carried` are those of its keys that later commits of any writer are to repeat, `opened`
    the states that a former try has brought it to.
    """

    instant: str
    files: Sequence[HudiFile]
    schema: str
    extra: Mapping[str, str]
    carried: Sequence[str]
    opened: Collection[str] = ()


class HudiClient:
    """Asks in a JVM, which starts with the first question. `hadoop` are settings of Hadoop's file systems."""

    def __init__(self, jvm: Jvm, hadoop: Mapping[str, str]) -> None:
        self.jvm, self._hadoop = jvm, hadoop

    def create(self, new: NewHudiTable, folder: Path) -> None:
        """Create a table in a folder that isn't there. Raises HudiRefused."""
        with self.jvm.calling(f"creating table {new.name}") as java:
            hudi = java.org.apache.hudi
            namespace, _, name = new.name.rpartition(".")
            builder = hudi.common.table.HoodieTableMetaClient.newTableBuilder()
            builder.setTableType(new.table_type.upper())
            builder.setTableName(name)
            builder.setDatabaseName(namespace)
            builder.setTableVersion(int(TABLE_VERSION))
            builder.setTableCreateSchema(new.schema)
            builder.setPopulateMetaFields(True)
            builder.setCommitTimezone(hudi.common.model.HoodieTimelineTimeZone.UTC)
            builder.setKeyGeneratorType(key_generator(new.key, new.partitions))
            if new.key:
                builder.setRecordKeyFields(",".join(new.key))
                modes = hudi.common.config.RecordMergeMode
                builder.setRecordMergeMode(getattr(modes, BY_EVENT if new.order else BY_COMMIT))
                if new.order:
                    builder.setOrderingFields(new.order)
            if new.partitions:
                builder.setPartitionFields(",".join(new.partitions))
                builder.setHiveStylePartitioningEnable(True)
                builder.setUrlEncodePartitioning(True)
            builder.initTable(self._storage(), str(folder))
            self.set_properties(folder, {UUID: new.uuid, CREATED_BY: f"calve {version('calve')}"})

    def set_properties(self, folder: Path, properties: Mapping[str, str]) -> None:
        """Give a table properties, under Hudi's own rules for the file. Raises HudiRefused."""
        with self.jvm.calling(f"setting properties of {folder}") as java:
            client = self._table(folder)
            config = java.org.apache.hudi.common.table.HoodieTableConfig
            config.update(client.getStorage(), client.getMetaPath(), self.jvm.properties(properties))

    def complete(
        self, folder: Path, properties: Mapping[str, str], done: Completion, check: Callable[[], None]
    ) -> None:
        """Complete an instant, opening it where that is still to be done. `check` is called under Hudi's lock, last of
        all: what it raises is raised, and nothing is completed. Raises HudiRefused. The lock file must be held.
        """
        checked = Check(check)
        with self.jvm.calling(f"committing {done.instant} to {folder}") as java:
            hudi = java.org.apache.hudi
            some = hudi.common.util.Option
            operation = hudi.common.model.WriteOperationType.BULK_INSERT
            action = action_of(table_type_of(properties))
            client = self._client(folder, properties, {_SCHEMA: done.schema, **carrying(done.carried)})
            try:
                client.getHeartbeatClient().start(done.instant)
                client.preWrite(done.instant, operation, self._table(folder))
                self._open(folder, action, done, operation)
                stats = self._stats(done.files)
                extra, before = some.of(self.jvm.map(done.extra)), some.of(checked)
                client.commitStats(done.instant, stats, extra, action, self.jvm.map({}), before)
                client.initTable(operation, some.empty())
            except Exception:
                if checked.raised is not None:
                    raise checked.raised from None
                raise
            finally:
                with suppress(Exception):
                    client.close()

    def _open(self, folder: Path, action: str, done: Completion, operation: Any) -> None:
        hudi = self.jvm.java.org.apache.hudi
        table = self._table(folder)
        timeline = table.getActiveTimeline()
        state = hudi.common.table.timeline.HoodieInstant.State.REQUESTED
        requested = table.getInstantGenerator().createNewInstant(state, action, done.instant)
        if "requested" not in done.opened:
            timeline.createNewInstant(requested)
        if "inflight" not in done.opened:
            metadata = hudi.common.model.HoodieCommitMetadata()
            metadata.setOperationType(operation)
            timeline.transitionRequestedToInflight(requested, hudi.common.util.Option.of(metadata))

    def _stats(self, files: Sequence[HudiFile]) -> Any:
        stats = self.jvm.java.java.util.ArrayList()
        for file in files:
            stat = self.jvm.java.org.apache.hudi.common.model.HoodieWriteStat()
            stat.setFileId(file.file_id)
            stat.setPath(file.path)
            stat.setPartitionPath(file.partition)
            stat.setPrevCommit("null")
            stat.setNumWrites(file.rows)
            stat.setNumInserts(file.rows)
            stat.setTotalWriteBytes(file.size)
            stat.setFileSizeInBytes(file.size)
            stat.setTotalWriteErrors(0)
            stats.add(stat)
        return stats

    @contextmanager
    def services(
        self,
        folder: Path,
        properties: Mapping[str, str],
        schema: str,
        settings: Mapping[str, str],
        carried: Sequence[str],
    ) -> Generator[Any]:
        """Hudi's write client for what maintenance asks of it, with these settings; the table has the `schema`. Raises
        HudiRefused. The lock file must be held.
        """
        with self.jvm.calling(f"maintaining {folder}"):
            client = self._client(folder, properties, {_SCHEMA: schema, **settings, **carrying(carried)})
            try:
                yield client
            finally:
                with suppress(Exception):
                    client.close()

    def _client(self, folder: Path, properties: Mapping[str, str], settings: Mapping[str, str]) -> Any:
        hudi, name = self.jvm.java.org.apache.hudi, properties["hoodie.table.name"]
        writes = {
            **WRITES,
            "hoodie.table.name": name,
            "hoodie.write.table.version": properties.get("hoodie.table.version", TABLE_VERSION),
            **settings,
        }
        config = hudi.config.HoodieWriteConfig.newBuilder().withPath(str(folder)).forTable(name)
        config = config.withProperties(self.jvm.properties(writes)).build()
        context = hudi.client.common.HoodieJavaEngineContext(self._storage())
        return hudi.client.HoodieJavaWriteClient(context, config)

    def _table(self, folder: Path) -> Any:
        """Hudi's view of a table, its timeline as it is now."""
        client = self.jvm.java.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        return client.setConf(self._storage()).setBasePath(str(folder)).setLoadActiveTimelineOnLoad(True).build()

    def _storage(self) -> Any:
        java = self.jvm.java
        configuration = java.org.apache.hadoop.conf.Configuration()
        # Else Hudi's Avro writer fails at lists with nulls, as clustering meets them.
        configuration.set("parquet.avro.write-old-list-structure", "false")
        for key, value in self._hadoop.items():
            configuration.set(key, value)
        return java.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(configuration)

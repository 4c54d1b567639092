"""A table and a dictionary under the same changes: Hypothesis draws what comes in which batch, task and commit.

All is real but the topic: the classes that write, the manifests, the commits, the catalog and the files. What Spark's
shuffle does, pieces in any order to the task of their keys, is done here.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform

from sink_core.batch import TableOutput
from tests.changing import attempt_of
from tests.row_histories.records import PARTITIONS, Drawn, Kind, Record, Row, State, changes_of, drawn, slices
from tests.row_histories.writing import SCHEMA, written

CLICKHOUSE_KEYS, SPARK_KEYS = 12, 30
BETWEEN_COMPACTIONS = 3
"""Batches at least: each takes Spark a second."""

NO_SPEC = PartitionSpec()
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))


class Reader(Protocol):
    """Somebody else's reader of tables with equality deletes."""

    def __call__(self, table: Table, snapshot_ids: list[int]) -> list[list[Row]]:
        """The rows of each of these snapshots, sorted."""
        ...


@dataclass
class Lake:
    """Where tables are made, and who reads them. `compact` rewrites the files of a table."""

    catalog: Catalog
    read: Reader
    compact: Callable[[str], None] | None = None
    counted: Counter[str] = field(default_factory=Counter[str])


class Histories(RuleBasedStateMachine):
    """A history of one table. Batches are committed in the order they were published in, several at once or one."""

    lake: ClassVar[Lake]
    keys: ClassVar[int]
    kinds: ClassVar[tuple[Kind, ...]]
    specs: ClassVar[tuple[PartitionSpec, ...]]
    every_commit: ClassVar[bool]
    """Read after each commit, and not all of them at the end."""

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.kind = data.draw(st.sampled_from(self.kinds), "kind")
        spec = data.draw(st.sampled_from(self.specs), "spec")
        self.lake.catalog.create_namespace_if_not_exists("histories")
        self.name = f"histories.t{uuid.uuid4().hex}"
        properties = {"format-version": "2", "read.split.adaptive-size.enabled": "false"}
        self.lake.catalog.create_table(self.name, SCHEMA, partition_spec=spec, properties=properties)
        self.offsets, self.number = [0] * PARTITIONS, 0
        self.published = State(self.kind, {})
        self.waiting: list[TableOutput] = []
        self.unread: list[tuple[int, State]] = []
        self.touched = set[int]()
        self.since_evolved = self.since_compacted = 0
        self.lake.counted["tables"] += 1

    @rule(data=st.data(), size=st.integers(1, 8), chance=st.randoms(use_true_random=False))
    def publish(self, data: st.DataObject, size: int, chance: random.Random) -> None:
        """A batch, written and not committed; `size` is how many records a task reads."""
        records = [self._record(one) for one in data.draw(drawn(self.keys), "records")]
        if self.kind is Kind.ORDERED:
            # What has been published is committed first: `order_by` needs `commit.every: batch`.
            self._take_in()
        standing = [(key, last.n or 0) for key, last in self.published.last.items()]
        tasks = slices(records, size)
        self.waiting.append(written(self.lake.catalog, self.name, self.kind, tasks, chance, standing))
        self.published = self.published.after(records)
        self.since_evolved, self.since_compacted = self.since_evolved + 1, self.since_compacted + 1
        changes = [change for record in records for change in record.changes]
        self.touched |= {change.key for change in changes}
        self.lake.counted += Counter(batches=1, changes=len(changes), tasks=len(tasks))

    @precondition(lambda self: self.waiting)
    @rule(asleep=st.booleans())
    def commit(self, asleep: bool) -> None:
        """All that waits; `asleep` is another coordinator, which wakes up with the same once it has landed."""
        table = self.lake.catalog.load_table(self.name)
        late = attempt_of(table, self.waiting) if asleep else None
        self._take_in()
        if late is not None:
            with pytest.raises(CommitFailedException):
                self.lake.catalog.commit_table(table, late.requirements, late.updates)
            self.lake.counted["late coordinators"] += 1

    @precondition(lambda self: self.lake.compact and self.since_evolved)
    @rule(spec=st.sampled_from(["country", "id_bucket", "v_bucket"]))
    def evolve(self, spec: str) -> None:
        """A partition field comes, or goes if it is there."""
        self.since_evolved = 0
        table = self.lake.catalog.load_table(self.name)
        with table.update_spec() as update:
            if spec in {field.name for field in table.spec().fields}:
                update.remove_field(spec)
            elif spec == "country":
                update.add_identity("country")
            else:
                update.add_field(spec.removesuffix("_bucket"), BucketTransform(2), spec)
        self.lake.counted["changes of a spec"] += 1

    @precondition(lambda self: self.lake.compact and self.unread and self.since_compacted >= BETWEEN_COMPACTIONS)
    @rule()
    def compact(self) -> None:
        """All files are rewritten, while batches may wait."""
        assert self.lake.compact is not None
        self.since_compacted = 0
        self.lake.compact(self.name)
        self._to_read(self.unread[-1][1])
        self.lake.counted["compactions"] += 1

    def teardown(self) -> None:
        if self.touched:
            self._take_in()
            self._read()
            self.lake.counted["keys"] += len(self.touched)

    def _record(self, one: Drawn) -> Record:
        self.number += 1
        # Without an order all changes of a key come in one partition.
        partition = one.anywhere if self.kind is Kind.ORDERED else one.key % PARTITIONS
        self.offsets[partition] += 1
        return Record(partition, self.offsets[partition], changes_of(one, self.number, self.kind, self.keys))

    def _take_in(self) -> None:
        if not self.waiting:
            return
        table = self.lake.catalog.load_table(self.name)
        attempt = attempt_of(table, self.waiting)
        self.lake.catalog.commit_table(table, attempt.requirements, attempt.updates)
        self.lake.counted += Counter(commits=1, **{"commits of several batches": len(self.waiting) > 1})
        self.waiting = []
        self._to_read(self.published)

    def _to_read(self, state: State) -> None:
        head = self.lake.catalog.load_table(self.name).current_snapshot()
        assert head is not None
        self.unread.append((head.snapshot_id, state))
        if self.every_commit:
            self._read()

    def _read(self) -> None:
        if not self.unread:
            return
        table, unread = self.lake.catalog.load_table(self.name), self.unread
        found = self.lake.read(table, [snapshot_id for snapshot_id, _ in unread])
        for rows, (snapshot_id, state) in zip(found, unread, strict=True):
            assert rows == state.rows(), f"{self.name} at {snapshot_id}"
        self.lake.counted["looks"] += len(unread)
        self.unread = []


def for_clickhouse(given: Lake, only: Kind | None = None) -> type[Histories]:
    """Of tables without partitions, and by key, looked at after each commit; of one kind, if given."""

    class ByClickHouse(Histories):
        lake, keys, every_commit = given, CLICKHOUSE_KEYS, True
        kinds, specs = (only,) if only else tuple(Kind), (NO_SPEC, BY_KEY)

    return ByClickHouse


SPECS = (NO_SPEC, BY_COUNTRY, BY_KEY)


def for_spark(given: Lake, begin: tuple[PartitionSpec, ...] = SPECS) -> type[Histories]:
    """Of tables with any partitions, which change; all of their snapshots are looked at in one query."""

    class BySpark(Histories):
        lake, keys, every_commit = given, SPARK_KEYS, False
        kinds, specs = (Kind.HARD, Kind.SOFT), begin

    return BySpark

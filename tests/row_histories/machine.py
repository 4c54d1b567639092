"""A table and a dictionary under the same changes: Hypothesis draws what comes in which batch, task and commit.

All is real but the topic: the classes that write, the manifests, the commits, the catalog and the files. What Spark's
shuffle does, pieces in any order to the task of their keys, is done here.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform

from calve.sink_core.iceberg.changes.equality import with_spec_of_deletes
from calve.sink_core.iceberg.commit.plan import Attempt
from calve.sink_core.tables.batch import TableOutput
from tests.changing import attempt_of
from tests.row_histories.records import PARTITIONS, Drawn, Kind, Record, Row, State, changes_of, drawn, slices
from tests.row_histories.writing import KEY, SCHEMA, written

CLICKHOUSE_KEYS, SPARK_KEYS = 12, 30
RECORDS = 1_000
"""More than a history has."""
BETWEEN_COMPACTIONS = 3
"""Batches at least: each takes Spark a second."""

NO_SPEC = PartitionSpec()
BY_COUNTRY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))


class Reader(Protocol):
    """Somebody else's reader of tables with equality deletes."""

    def __call__(self, table: Table, snapshot_ids: Sequence[int]) -> list[list[Row]]:
        """The rows of each of these snapshots, sorted."""
        ...


@dataclass
class Lake:
    """Where tables are made, and who reads them, by name. `compact` rewrites the files of a table."""

    catalog: Catalog
    readers: Mapping[str, Reader]
    compact: Callable[[str], None] | None = None
    counted: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True, slots=True)
class Batch:
    """What is published, and the dictionary once it is committed."""

    output: TableOutput
    state: State


@dataclass(frozen=True, slots=True)
class Coordinator:
    """One that has read the first `batches` of those that wait, and seen the table `at`, and has not committed yet."""

    attempt: Attempt
    batches: int
    at: tuple[int | None, int, int | None]


class Histories(RuleBasedStateMachine):
    """A history of one table. Batches are committed in the order they were published in, several at once or one. Its
    snapshots are read when it ends.
    """

    lake: ClassVar[Lake]
    keys: ClassVar[int]
    kinds: ClassVar[tuple[Kind, ...]]
    specs: ClassVar[tuple[PartitionSpec, ...]]
    evolves: ClassVar[bool]
    """Partition fields come and go."""

    @initialize(data=st.data(), apart=st.booleans())
    def create(self, data: st.DataObject, apart: bool) -> None:
        """`apart`: no two records have the same order."""
        self.kind, self.apart = data.draw(st.sampled_from(self.kinds), "kind"), apart
        spec = data.draw(st.sampled_from(self.specs), "spec")
        self.lake.catalog.create_namespace_if_not_exists("histories")
        self.name = f"histories.t{uuid.uuid4().hex}"
        properties = {"format-version": "2", "read.split.adaptive-size.enabled": "false"}
        self.table = self.lake.catalog.create_table(self.name, SCHEMA, partition_spec=spec, properties=properties)
        self.offsets, self.number = [0] * PARTITIONS, 0
        self.state = State(self.kind, {})
        self.died, self.unpublished = False, list[Record]()
        self.past: list[Record] = []
        self.waiting: list[Batch] = []
        self.asleep: list[Coordinator] = []
        self.unread: list[tuple[int, State]] = []
        self.touched = set[int]()
        self.since_evolved = self.since_compacted = 0

    @rule(data=st.data(), size=st.integers(1, 8), chance=st.randoms(use_true_random=False))
    def publish(self, data: st.DataObject, size: int, chance: random.Random) -> None:
        """A batch, written and not committed; `size` is how many records a task reads."""
        records = self._read_on(data)
        self._publish(records, size, chance)
        self.unpublished, self.past = [], [*self.past, *records]

    @precondition(lambda self: self.state.last and not self.died)
    @rule(data=st.data(), size=st.integers(1, 8), chance=st.randoms(use_true_random=False))
    def die(self, data: st.DataObject, size: int, chance: random.Random) -> None:
        """A process writes a batch and is killed, or woken up too late to publish it. Its files stay, named by nobody,
        and its records come again in the next batch, in whatever tasks. Once in a history: it costs what a batch does.
        """
        self.died, self.unpublished = True, self._read_on(data)
        self._written(self.unpublished, size, chance)
        self.lake.counted["batches never published"] += 1

    @precondition(lambda self: self.past and self.kind is Kind.ORDERED)
    @rule(data=st.data(), size=st.integers(1, 8), chance=st.randoms(use_true_random=False))
    def replay(self, data: st.DataObject, size: int, chance: random.Random) -> None:
        """Records of earlier batches come again; they change nothing if their order is theirs alone."""
        places = data.draw(st.sets(st.integers(0, len(self.past) - 1), min_size=1, max_size=8), "past")
        before = self.state
        self._publish([self.past[place] for place in sorted(places)], size, chance)
        assert self.state == before or not self.apart
        self.lake.counted["replays"] += 1

    @precondition(lambda self: self.waiting)
    @rule()
    def commit(self) -> None:
        """All that waits."""
        self._take_in()

    @precondition(lambda self: self.waiting and len(self.asleep) < 2)
    @rule()
    def fall_asleep(self) -> None:
        """A coordinator sleeps, or is killed, when all is ready for the commit."""
        self.asleep.append(self._coordinator())

    @precondition(lambda self: self.asleep)
    @rule()
    def wake(self) -> None:
        """It goes on: with what others have committed meanwhile, or as the first."""
        self._swap(self.asleep.pop())

    @precondition(lambda self: self.evolves and self.since_evolved)
    @rule(spec=st.sampled_from(["country", "id_bucket", "v_bucket"]))
    def evolve(self, spec: str) -> None:
        """A partition field comes, or goes if it is there."""
        self.since_evolved = 0
        with self.table.update_spec() as update:
            if spec in {field.name for field in self.table.spec().fields}:
                update.remove_field(spec)
            elif spec == "country":
                update.add_identity("country")
            else:
                update.add_field(spec.removesuffix("_bucket"), BucketTransform(2), spec)
        self.table = self.lake.catalog.load_table(self.name)
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
            while self.asleep:
                self.wake()
            self._read()
            self.lake.counted += Counter(histories=1, keys=len(self.touched))

    def _read_on(self, data: st.DataObject) -> list[Record]:
        """What nobody has published yet, and more."""
        return [*self.unpublished, *(self._record(one) for one in data.draw(drawn(self.keys), "records"))]

    def _record(self, one: Drawn) -> Record:
        self.number += 1
        # Without an order all changes of a key come in one partition.
        partition = one.anywhere if self.kind is Kind.ORDERED else one.key % PARTITIONS
        self.offsets[partition] += 1
        one = replace(one, n=one.n * RECORDS + self.number) if self.apart else one
        return Record(partition, self.offsets[partition], changes_of(one, self.number, self.kind, self.keys))

    def _publish(self, records: Sequence[Record], size: int, chance: random.Random) -> None:
        output = self._written(records, size, chance)
        self.state = self.state.after(records)
        self.waiting.append(Batch(output, self.state))
        self.since_evolved, self.since_compacted = self.since_evolved + 1, self.since_compacted + 1
        changes = [change for record in records for change in record.changes]
        self.touched |= {change.key for change in changes}
        self.lake.counted += Counter(batches=1, changes=len(changes))

    def _written(self, records: Sequence[Record], size: int, chance: random.Random) -> TableOutput:
        if self.kind is Kind.ORDERED:
            # What has been published is committed first: `order_by` needs `commit.every: batch`.
            self._take_in()
        self.table = with_spec_of_deletes(self.lake.catalog, self.table, KEY)
        existing = [(key, last.n or 0) for key, last in self.state.last.items()]
        tasks = slices(records, size)
        self.lake.counted["tasks"] += len(tasks)
        return written(self.table, self.name, self.kind, tasks, chance, existing)

    def _take_in(self) -> None:
        if self.waiting:
            self._swap(self._coordinator())

    def _coordinator(self) -> Coordinator:
        outputs = [batch.output for batch in self.waiting]
        attempt = attempt_of(self.table, outputs)
        self.table = self.lake.catalog.load_table(self.name)
        return Coordinator(attempt, len(outputs), self._at())

    def _at(self) -> tuple[int | None, int, int | None]:
        """The head, the default spec, and the last partition field: all that a commit rests on."""
        metadata = self.table.metadata
        return metadata.current_snapshot_id, metadata.default_spec_id, metadata.last_partition_id

    def _swap(self, by: Coordinator) -> None:
        """The commit itself, which lands if the table is as it was seen; after a change of the spec it may."""
        try:
            self.lake.catalog.commit_table(self.table, by.attempt.requirements, by.attempt.updates)
        except CommitFailedException:
            assert by.at != self._at()
            self.lake.counted["late coordinators"] += 1
            return
        assert by.at[0] == self._at()[0]
        self.lake.counted += Counter(commits=1, **{"commits of several batches": by.batches > 1})
        state, self.waiting = self.waiting[by.batches - 1].state, self.waiting[by.batches :]
        self._to_read(state)

    def _to_read(self, state: State) -> None:
        self.table = self.lake.catalog.load_table(self.name)
        head = self.table.metadata.current_snapshot_id
        assert head is not None
        self.unread.append((head, state))

    def _read(self) -> None:
        for reader, read in self.lake.readers.items():
            found = read(self.table, [snapshot_id for snapshot_id, _ in self.unread])
            for rows, (snapshot_id, state) in zip(found, self.unread, strict=True):
                assert rows == state.rows(), f"{self.name} at {snapshot_id}, read by {reader}"
            self.lake.counted[f"looks by {reader}"] += len(self.unread)


def of_one_spec(given: Lake, only: Kind | None = None) -> type[Histories]:
    """Of tables without partitions or with such as the key says, which every reader reads; of one kind, if given."""

    class OfOneSpec(Histories):
        lake, keys, evolves = given, CLICKHOUSE_KEYS, False
        kinds, specs = (only,) if only else tuple(Kind), (NO_SPEC, BY_KEY)

    return OfOneSpec


SPECS = (NO_SPEC, BY_COUNTRY, BY_KEY)


def of_many_specs(given: Lake, begin: tuple[PartitionSpec, ...] = SPECS) -> type[Histories]:
    """Of tables with any partitions, which change."""

    class OfManySpecs(Histories):
        lake, keys, evolves = given, SPARK_KEYS, True
        kinds, specs = tuple(Kind), begin

    return OfManySpecs

"""What the driver tells the tasks of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.reading import BINARY, FormatsByTopic
from calve.sink_core.config.routing import ALL, Naming, Rule
from calve.sink_core.config.tables import NO_STEPS, Steps, Transform
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.tables.format.target import Target
from calve.sink_core.tables.row_changes import ExistingRows, RowChanges


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as it was when the batch was planned: its `target`, and which rows go there.

    Unless the distribution is `none` its rows go through Spark's shuffle to the tasks that write them. `evolve` says
    what a task may want of its schema, `any_case` that fields match whatever the case of their names, `transform` the
    SQL that makes its rows, and `keys_as` the type that this sees keys as. With `changes` records change rows that
    are there. An `explicit` one, which the pipeline file names, is counted for every partition, whether `rule`
    takes its topic or not. Changes are held against the rows of `existing`, if there are any. `ignored` and
    `strict` as in `records/columns/names.Names`.
    """

    name: str
    target: Target
    evolve: Steps = NO_STEPS
    any_case: bool = False
    transform: Transform | None = None
    keys_as: str = BINARY
    rule: Rule = ALL
    explicit: bool = True
    changes: RowChanges | None = None
    existing: ExistingRows | None = None
    ignored: tuple[str, ...] = ()
    strict: bool = False

    @property
    def may_leave_out(self) -> bool:
        """Whether a record that can be stored may be none of the table's."""
        by_sql = self.transform is not None and self.transform.where is not None
        return not self.rule.takes_all or by_sql or (self.changes is not None and bool(self.changes.events))


@dataclass(frozen=True, slots=True)
class IngestSpec:
    """What all tasks of a batch have in common. Connections are unresolved: each task reads its own environment.

    `skip` are offsets of records that are dead letters already: a range job leaves them there. If `evolving`, tasks ask
    for tables that `namings` allow and that are not among `tables`; else records for these are unrouted. `topics` are
    all that are read: by their places tasks tell each other where a change comes from. `careful`: one that was planned
    where this one was has died, perhaps of a record (`write/deadly.py`).
    """

    batch_id: str
    group: str
    catalog: CatalogSettings
    tables: tuple[TableSpec, ...]
    dead_letters: TableSpec
    stop_on_bad_record: bool
    readings: FormatsByTopic
    kafka: Mapping[str, Any] = field(repr=False)
    skip: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict[TopicPartition, tuple[int, ...]])
    namings: tuple[Naming, ...] = ()
    evolving: bool = False
    topics: tuple[str, ...] = ()
    careful: bool = False

    @property
    def is_distributed(self) -> bool:
        """Whether rows of a table go to other tasks than those that read them."""
        return any(table.target.distribution != "none" for table in self.tables)

    @property
    def looks_at_tables(self) -> bool:
        """Whether changes are held against the rows of their table."""
        return any(table.existing is not None for table in self.tables)

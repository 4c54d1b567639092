"""What became of offsets: the counts of a batch, by partition, and of what no table holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionCounts:
    """What became of one partition's offsets in a batch; one row of the ledger.

    `records` were delivered by the broker; `gaps` are offsets of the range at which it delivered none (control records,
    aborted transactions, compaction); `lost` are those that an answer to a finding passed over unread: records + gaps +
    lost = end - start. `value_bytes` sums keys and values as delivered.
    `written` counts rows per table; `unrouted` records are those that no table takes by its rule, `filtered` those that
    the SQL of each table that takes them leaves out, and `left_out` says how many of the others that could be stored
    each table did not get, by its rule or SQL: a table that isn't in it gets all. A table found at
    run time is in `written` only where records were for it. `max_timestamp_ms` is -1 where there was no record;
    `timestamp_type` is the broker's (1 = CreateTime, 2 = LogAppendTime, 0 = not available).
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int = 0
    gaps: int = 0
    tombstones: int = 0
    filtered: int = 0
    dead_lettered: int = 0
    value_bytes: int = 0
    max_timestamp_ms: int = -1
    timestamp_type: int = 0
    written: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    unrouted: int = 0
    left_out: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def storable(self) -> int:
        """Records that each data table gets or leaves out."""
        return self.records - self.tombstones - self.filtered - self.dead_lettered


Dropped = Mapping[str, Mapping[str, int]]
"""By table and dotted name of a field that it has no column for, how many values were left out."""


def not_stored(dead_letters: int, filtered: int, unrouted: int, tombstones: int) -> dict[str, int]:
    """What became of the records that are in no data table, in words; what there is none of is left out."""
    numbers = {"dead letters": dead_letters, "filtered": filtered, "unrouted": unrouted, "tombstones": tombstones}
    return {what: number for what, number in numbers.items() if number}

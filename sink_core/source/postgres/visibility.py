"""Places in PostgreSQL's log, and what a snapshot sees: by both a row of a table is told once. Pure.

A table's rows are read in a snapshot of its own, after the replication slot was made. What the log has of the table is
then left out if the snapshot has seen it:

    the transaction committed before the place that the log had right after the snapshot, and
    the snapshot says that it was over by then.

A transaction is over for others a moment after its commit is in the log. So a place alone could not tell: one that had
committed in the log and was not over yet would be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

_EPOCH = 1 << 32


def lsn_of(text: str) -> int:
    """The number of a log sequence number, `16/B374D848`."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """A log sequence number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


@dataclass(frozen=True)
class TableSnapshot:
    """When the rows of a table were read: `snapshot` as `pg_current_snapshot()` has it, `lsn` the log's end after it.

    https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-INFO-SNAPSHOT
    """

    snapshot: str
    lsn: int

    @cached_property
    def _parts(self) -> tuple[int, frozenset[int]]:
        _xmin, xmax, running = self.snapshot.split(":")
        return int(xmax), frozenset(int(each) for each in running.split(",") if each)

    def saw(self, xid: int, commit_lsn: int) -> bool:
        """Whether the rows are there as a transaction left them; `xid` are the lower 32 bits of its id."""
        if commit_lsn >= self.lsn:
            return False
        xmax, running = self._parts
        # Never further from xmax than half of all ids: PostgreSQL sees to that.
        ahead = (xid - xmax) % _EPOCH
        if ahead < _EPOCH // 2:
            return False
        return xmax + ahead - _EPOCH not in running

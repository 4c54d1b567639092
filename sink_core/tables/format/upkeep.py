"""What a table format offers to maintenance, whose tasks mean for each format what they can."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from calve.sink_core.config.table_maintenance import Compact, Expire
from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for one table. `owned` as the pipeline file says, None if it says nothing; `wanted`: somebody has
    asked for the task. Under `dry_run` nothing is done.
    """

    name: str
    owned: bool | None
    wanted: bool
    dry_run: bool
    tell: Callable[[str], None]


class Upkeep(Protocol):
    """Maintenance of the tables of one lake. All raise CalveErrors."""

    def compact(self, job: Job, settings: Compact, target_bytes: int) -> TaskOutcome:
        """Join small files, and bring into files what lies beside them."""
        ...

    def expire(self, job: Job, settings: Expire) -> TaskOutcome:
        """Forget old versions, and files that only they name."""
        ...

    def orphans(self, job: Job, older_than_ms: int) -> Leftovers:
        """The files that nothing may name, listed before anything is given up."""
        ...


class Leftovers(Protocol):
    """Files of a table that were listed."""

    @property
    def outcome(self) -> TaskOutcome | None:
        """What there is to say if none is left to look at."""
        ...

    def remove(self, state: CommitState) -> TaskOutcome:
        """Delete those that neither the log nor the table names, batches in progress having been given up."""
        ...

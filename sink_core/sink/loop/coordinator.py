"""The coordinator: the control log first, then each table. Two at once are harmless (docs/design.md, Commit)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.sink.loop.complete import REASON
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.log.events import CommitComplete, CommitToTable
from calve.sink_core.tables.log.state import CommitState

Commits = Callable[[Collection[str]], Iterator[tuple[str, TableCommit | CalveError | None]]]
"""As `commit` of a `Lake`."""


@dataclass(frozen=True, slots=True)
class CommitReport:
    """One round over the tables. `failed` holds the tables that stay behind, each with its reason."""

    commits: tuple[TableCommit, ...]
    failed: dict[str, CalveError]
    valid_through_ms: int | None

    @property
    def landed(self) -> list[TableCommit]:
        return [commit for commit in self.commits if commit.landed]

    def to_json(self) -> dict[str, Any]:
        """Snapshot ids as text: they exceed what JSON readers keep exactly."""
        return {
            "commits": [{**asdict(c), "snapshot_id": c.snapshot_id and str(c.snapshot_id)} for c in self.commits],
            "failed": {table: error.to_json() for table, error in self.failed.items()},
            "valid_through_ms": self.valid_through_ms,
        }

    def raise_failures(self) -> None:
        """Raise the first finding, else the first other failure, if a table stayed behind."""
        raise_first(self.failed)


def raise_first(failed: Mapping[str, CalveError]) -> None:
    """Raise the first finding, else the first other failure, if there is any."""
    findings = [error for error in failed.values() if isinstance(error, FindingError)]
    for error in [*findings, *failed.values()]:
        raise error


class Coordinator:
    """Commits all that is published: which tables have news, and what is reported. `commits` does the tables."""

    def __init__(self, log: ControlLog[CommitState], commits: Commits) -> None:
        self._log = log
        self._commits = commits

    def commit(
        self,
        *,
        tables: Iterable[str] = (),
        only: bool = False,
        after_publish: bool = False,
        behind: Mapping[str, CalveError] = MappingProxyType({}),
        on_table: Callable[[TableCommit], None] | None = None,
    ) -> CommitReport:
        """Take everything published into its tables.

        `after_publish`: this process has just published, so that its transaction's marker may still be on its way and
        the LSO of the moment may lie below its events; wait for it. Others take what is below the LSO and never wait.
        `tables` are looked at even if the log has nothing new for them, so that findings show; with `only` no others
        are, and no COMMIT_COMPLETE is written, which speaks for all. One table's failure does not stop the others;
        tables that are `behind`, with the failure of each, are not tried again.
        """
        state = self._log.refresh_to_end() if after_publish else self._log.refresh()
        limit, pipeline_id = state.limit, state.bound.pipeline_id if state.bound else ""
        commits: list[TableCommit] = []
        failed = dict(behind)
        names = sorted(({*tables} if only else {*tables, *state.tables_with_news()}) - behind.keys())
        for name, commit in self._commits(names):
            if isinstance(commit, CalveError):
                failed[name] = commit
            elif commit is not None:
                commits.append(commit)
                self._report(commit, state, pipeline_id)
                if on_table:
                    on_table(commit)
        report = CommitReport(tuple(commits), failed, state.valid_through_ms(limit))
        if report.landed and self._log.whole and not only:
            self._complete(report, state, limit, pipeline_id)
        return report

    def _report(self, commit: TableCommit, state: CommitState, pipeline_id: str) -> None:
        """Report what the table has, also for what a dead coordinator left unsaid."""
        reported = state.reported_offset(commit.table, commit.table_uuid)
        if commit.snapshot_id is None or reported >= commit.stored_offset:
            return
        reach("commit.before-report")
        self._log.append(
            CommitToTable(
                pipeline_id=pipeline_id,
                table=commit.table,
                table_uuid=commit.table_uuid,
                snapshot_id=commit.snapshot_id,
                stored_offset=commit.stored_offset,
                valid_through_ms=commit.valid_through_ms,
                control_topic_id=state.bound.control_topic_id if state.bound else "",
            )
        )

    def _complete(self, report: CommitReport, state: CommitState, limit: int, pipeline_id: str) -> None:
        reach("commit.before-complete")
        behind = [state.written[t][0].offset for t in report.failed if state.written.get(t)]
        self._log.append(
            CommitComplete(
                pipeline_id=pipeline_id,
                commit_id=str(uuid.uuid4()),
                through_offset=min([limit, *behind]),
                tables_behind=tuple(sorted(report.failed)),
                valid_through_ms=report.valid_through_ms,
                reasons={table: f"{error.message[:REASON]} [{error.code}]" for table, error in report.failed.items()},
            )
        )

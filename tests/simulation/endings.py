"""How a process may end: with a true finding, an error that is tried again, or what somebody's deeds explain."""

from __future__ import annotations

from collections.abc import Collection

from calve.sink_core.errors import (
    CalveError,
    ConfigError,
    FindingError,
    ProtocolError,
    RetriableError,
    TableUnusable,
    UnknownOutcome,
)
from tests.simulation.promises import Crash, Promise, Violation

Deed = tuple[str, str]
"""What was done, and to what."""

OLD = "old "
"""Begins the names of processes on hosts of the first version."""

CAUSES: dict[str, set[str]] = {
    "table-rolled-back": {"roll back", "expire", "restore"},
    "table-restored": {"restore", "untag", "roll back", "recreate"},
    "tag-removed": {"untag", "restore"},
    "table-recreated": {"recreate", "drop"},
    "table-dropped": {"recreate", "drop"},
    "topic-recreated": {"recreate topic"},
    "positions-missing": {"forget positions", "recreate topic"},
    "positions-changed": {"reset positions", "forget positions", "recreate topic"},
    "positions-beyond-end": {"reset positions", "recreate topic"},
    "control-topic-recreated": {"recreate control topic", "truncate control topic"},
    "control-topic-truncated": {"recreate control topic", "truncate control topic"},
    # A rebuild that can't know where a partition began begins at offset 0.
    "records-lost-to-retention": {"recreate control topic", "truncate control topic"},
    # A process that woke up late writes to a topic that a rebuild has bound to a new pipeline id.
    "foreign-events": {"recreate control topic", "truncate control topic"},
}
"""What a user, a broker or somebody else must have done before a finding is true. One that is not here never is."""


def judge(process: str, error: Exception, deeds: Collection[Deed]) -> None:
    """Whether a process may end with `error`. Raises Crash for one that is none of Calve's."""
    if not isinstance(error, CalveError):
        raise Crash(f"{process} ended with {type(error).__name__}: {error}") from error
    if isinstance(error, FindingError):
        wanted = CAUSES.get(error.finding, set())
        if not any(deed in wanted and subject == error.subject for deed, subject in deeds):
            raise Violation(Promise.TRUE_FINDINGS, f"false finding {error.message}") from error
    elif process.startswith(("resolve", "replay")) and isinstance(error, ConfigError | TableUnusable):
        # A choice that is not possible, a finding that does not stand any more, rows that can't be replaced.
        pass
    elif process.startswith(OLD) and isinstance(error, ProtocolError):
        # It meets a replay.
        pass
    elif not isinstance(error, RetriableError | UnknownOutcome):
        # A table or topic that goes while a process uses it may be reported in other ways.
        gone = {deed for deed, _ in deeds} & {"recreate", "drop", "recreate topic", "recreate control topic"}
        if not gone:
            raise Violation(Promise.KNOWN_ENDS, f"{process} ended with {type(error).__name__}: {error}") from error

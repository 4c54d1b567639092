"""The one call that changes a table, and a look at what became of it. What to do after a lost race."""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import describe
from calve.sink_core.errors import CalveError, CommitConflict, UnknownOutcome, Unreachable
from calve.sink_core.iceberg.catalog.opening import row_is_locked, without_tags
from calve.sink_core.iceberg.commit.plan import Attempt
from calve.sink_core.iceberg.compat import delete_old_metadata
from calve.sink_core.timing import back_off

ATTEMPTS = 10
"""Lost races before a table stays behind until the next commit."""

LOOKS = 3
"""How often a table is loaded at most to see what became of a commit."""

_LASTING = (TypeError, AttributeError, NotImplementedError, PermissionError)
"""Errors that say nothing about a race: the same call would fail the same way."""


def swap(catalog: Catalog, table: Table, attempt: Attempt) -> Exception | None:
    """None if the attempt landed, else why another try is due.

    After any exception the table decides: our snapshot is there (the reply was lost), or it is not. Then the next
    attempt starts from the load: should this one land late, it finds the head moved or the snapshot in the table.
    Raises UnknownOutcome if the catalog can't be asked, or will refuse the next attempt as well, and TableUnusable for
    one that keeps no tags.
    """
    try:
        response = catalog.commit_table(table, attempt.requirements, attempt.updates)
    except Exception as error:  # noqa: BLE001 - whatever a catalog raises, only the table knows the outcome
        return None if _landed_after_all(catalog, table, attempt, error) else error
    given = (each.ref_name for each in attempt.updates if isinstance(each, SetSnapshotRefUpdate))
    if lacking := [ref for ref in given if ref not in response.metadata.refs]:
        raise without_tags(".".join(table.name()), ", ".join(lacking))
    # What stays is an orphan, which maintenance deletes.
    with suppress(Exception):
        delete_old_metadata(catalog, table.io, table.metadata, response.metadata)
    return None


def gave_up(name: str, cause: Exception | None) -> CalveError:
    """The error after `ATTEMPTS` tries, of which the last failed with `cause`."""
    if cause is None or isinstance(cause, CommitFailedException):
        return CommitConflict(
            f"{name}: {ATTEMPTS} attempts in a row lost the race against other writers",
            hint="the table stays as it is, and the next try goes on; does another job commit without pause?",
            code=Code.RACES_LOST,
        )
    if row_is_locked(cause):
        return Unreachable(
            f"{name}: {ATTEMPTS} attempts to commit waited in vain for its row in the catalog's database",
            hint="end the session that holds it (pg_stat_activity lists it); the next try goes on",
            code=Code.ROW_LOCKED,
        )
    return Unreachable(
        f"{name}: {ATTEMPTS} attempts to commit failed in a row, the last with {describe(cause)}",
        hint="the table stays as it is, and the next try goes on; see the catalog's log",
        code=Code.COMMITS_FAIL,
    )


def _landed_after_all(catalog: Catalog, table: Table, attempt: Attempt, cause: Exception) -> bool:
    name = ".".join(table.name())
    try:
        metadata = _reloaded(catalog, table, cause).metadata
    except NoSuchTableError:
        return False
    if metadata.snapshot_by_id(attempt.snapshot_id) is not None:
        return True
    if metadata.refs == table.metadata.refs and isinstance(cause, _LASTING):
        raise UnknownOutcome(
            f"{name}: the catalog refused the commit: {describe(cause)}", code=Code.COMMIT_REFUSED
        ) from cause
    return False


def _reloaded(catalog: Catalog, table: Table, cause: Exception) -> Table:
    """The table after a commit that failed with `cause`. A catalog just in trouble is asked more than once."""
    last = cause
    for look in range(LOOKS):
        if look:
            back_off(look - 1, first_s=1.0)
        try:
            return catalog.load_table(table.name())
        except NoSuchTableError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            last = error
    raise UnknownOutcome(
        f"{'.'.join(table.name())}: the commit failed ({describe(cause)}), and the table can't be loaded to see if it "
        f"landed ({describe(last)})",
        hint="is the catalog reachable? The next commit looks again; nothing can land twice",
        code=Code.OUTCOME_UNSEEN,
    ) from cause

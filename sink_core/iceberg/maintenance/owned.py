"""Whether a table's snapshots and files are Calve's to remove. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from calve.sink_core.iceberg.create.tables import CREATED_BY
from calve.sink_core.iceberg.files.places import folder, plain
from calve.sink_core.iceberg.maintenance.expiry import calve_tags


def why_not_owned(table: Table, owned: bool | None) -> str | None:
    """Why snapshots must stay, None if they may be expired; `owned` as in the pipeline file."""
    if owned is None and CREATED_BY not in table.metadata.properties:
        return "not created by Calve, and the pipeline file doesn't say owned: true for it"
    return "the pipeline file says owned: false" if owned is False else None


def why_files_stay(
    table: Table, tag: str, others: Sequence[tuple[str, str]], unknown: Sequence[str] = ()
) -> str | None:
    """Why no file may be called an orphan here, None if nothing stands against it.

    `tag` is this pipeline's, `others` names and locations of all other tables known: below a shared location one's
    files are the other's orphans. What another pipeline has written and not committed yet, nobody here can know. Of
    `unknown` tables, which can't be loaded, only the name tells where they are: in no folder named for this one.
    """
    strangers = sorted(calve_tags(table.metadata).keys() - {tag})
    if strangers:
        return f"also fed by {', '.join(strangers)}, whose files on the way can't be known here"
    mine = folder(table.location())
    shared = [name for name, location in others if _overlap(mine, folder(location))]
    if shared:
        return f"its location {table.location()} is shared with {', '.join(shared)}"
    if unknown and not mine.rstrip("/").rpartition("/")[2].startswith(table.name()[-1]):
        told = "could be shared with tables that can't be loaded"
        return f"its location {table.location()}, which does not end in its name, {told}: {', '.join(unknown)}"
    return None


def _overlap(one: str, other: str) -> bool:
    short, long = sorted((plain(one), plain(other)), key=len)
    return long.startswith(short)

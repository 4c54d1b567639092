"""Changing a property of a table, which is kept where whoever wonders about the table finds it."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.timing import back_off


def change_property(catalog: Catalog, name: str, key: str, change: Callable[[str], str]) -> bool:
    """Set a property to what `change` makes of its value, "" where it has none; False if there is no such table.

    Each attempt starts from the load, and asserts that the table is the one that was loaded: Iceberg asserts no
    properties. So `change` is to give the same when it is made twice, and one key is to have one writer. Raises
    CommitConflict or Unreachable after too many attempts.
    """
    lost_to: Exception | None = None
    for attempt_number in range(ATTEMPTS):
        table = load_if_there(catalog, name)
        if table is None:
            return False
        update = SetPropertiesUpdate(updates={key: change(table.metadata.properties.get(key, ""))})
        try:
            with unreachable_as_ours(f"setting a property of {name}"):
                catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))
        except (CommitFailedException, CommitStateUnknownException) as error:
            lost_to = error
            back_off(attempt_number)
        else:
            return True
    raise gave_up(name, lost_to)

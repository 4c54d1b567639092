"""The time of a commit, which may not lie before the table's last change: Java's readers refuse such a table.

Clocks of hosts differ, and a process sleeps between building a commit and the swap. An Iceberg table lets times go back
by a minute; beyond that neither Spark nor Trino loads it ("Invalid update timestamp").
"""

from __future__ import annotations

import time
from typing import cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, ValidatableTableRequirement

TOLERANCE_MS = 30_000
"""How far a commit may lie before the table's last change; half of what readers take."""


def time_for(metadata: TableMetadata) -> int:
    """Milliseconds since 1970 for a snapshot on top of `metadata`: now, and always after its last change.

    For a table that is left with the time of its last change pyiceberg puts this host's.
    """
    return max(int(time.time() * 1000), metadata.last_updated_ms + 1)


def not_updated_past(timestamp_ms: int) -> TableRequirement:
    """The requirement that a table was not changed later than a commit's time, but for `TOLERANCE_MS`."""
    # The type names pyiceberg's own; what is asked of any is `validate`.
    return cast(TableRequirement, NotUpdatedPast(timestamp_ms=timestamp_ms))


class NotUpdatedPast(ValidatableTableRequirement):
    """See `not_updated_past`. Iceberg's REST protocol has no such requirement; there the server looks itself."""

    type: str = "calve-not-updated-past"
    timestamp_ms: int

    def validate(self, base_metadata: TableMetadata | None) -> None:
        """Raises CommitFailedException."""
        if base_metadata is not None and base_metadata.last_updated_ms - self.timestamp_ms > TOLERANCE_MS:
            raise CommitFailedException(
                f"the table was changed at {base_metadata.last_updated_ms}, the commit is of {self.timestamp_ms}"
            )

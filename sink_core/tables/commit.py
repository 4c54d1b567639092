"""What a commit found or did at one table, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What a commit found or did at one table. `snapshot_id` is None for a table that has never had a commit of ours.

    `landed` is False when there was nothing new. `conflicts` counts tries before success. `rows` and `files` were
    added; the totals, in rows (None where only reading tells), files and bytes, are the table's with them. `dropped`
    are range jobs that were to replace rows and did not fit the table any more. `seconds` of wall time, lost races
    included.
    """

    table: str
    table_uuid: str
    snapshot_id: int | None
    stored_offset: int
    valid_through_ms: int | None
    landed: bool
    batches: tuple[str, ...] = ()
    rows: int = 0
    files: int = 0
    total_rows: int | None = 0
    total_files: int = 0
    total_bytes: int = 0
    conflicts: int = 0
    dropped: tuple[str, ...] = ()
    seconds: float = 0.0

    def followed_by(self, later: TableCommit | None) -> TableCommit:
        """Both as one; the later one found no table if somebody dropped it in between."""
        if later is None:
            return self
        return replace(
            later,
            landed=True,
            batches=(*self.batches, *later.batches),
            rows=self.rows + later.rows,
            files=self.files + later.files,
            conflicts=self.conflicts + later.conflicts,
            dropped=(*self.dropped, *later.dropped),
        )

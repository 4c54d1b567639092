"""Which snapshots of a table were there when, seen by somebody who looks at its catalog many times a second.

A look costs next to nothing, so that it takes nothing from what is measured: one row of a SQLite catalog, and the
metadata file when that has changed. What the snapshots hold is read at the end.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

LOOK_EVERY_S = 0.02
STAMP = "id"
"""The column with the milliseconds at which an event was sent (`Producing` with `stamped`)."""


@dataclass
class Seen:
    """A table `namespace.name` of the SQLite catalog in `database`. `at_s` has when each new snapshot was first seen,
    `added` are the rows that the table has more than it began with.
    """

    database: Path
    table: str
    at_s: dict[int, float] = field(default_factory=dict[int, float])
    added: int = 0
    _old: set[int] = field(default_factory=set[int])
    _before: int = 0
    _location: str = ""

    def begin(self) -> None:
        """What is there now is not new."""
        self.look()
        self._old |= self.at_s.keys()
        self._before, self.added = self._before + self.added, 0
        self.at_s.clear()

    def look(self) -> None:
        now_s, location = time.time(), self._current()
        if location is None or location == self._location:
            return
        self._location = location
        metadata = json.loads(Path(location.removeprefix("file://").removeprefix("file:")).read_text())
        snapshots = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
        for snapshot_id in snapshots.keys() - self.at_s.keys() - self._old:
            self.at_s[snapshot_id] = now_s
        head = snapshots.get(metadata.get("current-snapshot-id"))
        self.added = int(head["summary"]["total-records"]) - self._before if head else 0

    def watch(self, done: Callable[[], bool], timeout_s: float) -> float:
        """Look until `done`; when that was. Raises SystemExit after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {timeout_s:.0f} s; {self.added:,} new rows are visible in {self.table}")
            self.look()
            time.sleep(LOOK_EVERY_S)
        return time.time()

    def ages_s(self, catalog: Catalog, start_s: float, end_s: float) -> list[float]:
        """Of the records whose snapshots were first seen in a span of time: how long before that they were sent."""
        table = catalog.load_table(self.table)
        within = [(snapshot_id, at) for snapshot_id, at in self.at_s.items() if start_s <= at <= end_s]
        return [at - sent_ms / 1000 for snapshot_id, at in within for sent_ms in _sent_ms(table, snapshot_id)]

    def _current(self) -> str | None:
        """The table's metadata file; None while there is no such catalog or table, or somebody holds its lock."""
        namespace, _, name = self.table.rpartition(".")
        with (
            suppress(sqlite3.OperationalError),
            closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as catalog,
        ):
            row = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
                (namespace, name),
            ).fetchone()
            return row[0] if row else None
        return None


def _sent_ms(table: Table, snapshot_id: int) -> list[int]:
    """Of the rows a snapshot added."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    sent: list[int] = []
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            # Of files that another snapshot has added a manifest may speak that was merged from several.
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id:
                with table.io.new_input(entry.data_file.file_path).open() as source:
                    sent += pq.read_table(pa.PythonFile(source), columns=[STAMP]).column(STAMP).to_pylist()
    return sent

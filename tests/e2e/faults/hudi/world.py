"""A pipeline whose topic goes into an Iceberg table and into Hudi tables of both types."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.timeline import extra_of, read_timeline
from tests import hudi_tables
from tests.e2e.faults.world import COLUMNS, DAYS, Difference, World

TYPES = ("copy_on_write", "merge_on_read")


@dataclass
class HudiWorld(World):
    """The second Hudi table is partitioned."""

    def folder(self, table_type: str) -> Path:
        return self.directory / "hudi" / "faults" / f"{self.name}_{table_type}"

    def difference(self) -> Difference:
        """The worst of the three tables, and of the timelines: each instant once, each range once, in order."""
        found = super().difference()
        for table_type in TYPES:
            folder = self.folder(table_type)
            seen = Counter(hudi_tables.ids(folder))
            found = Difference(
                lost=found.lost + len(self.events - seen.keys()),
                twice=found.twice
                + sum(n - 1 for n in seen.values())
                + hudi_tables.twice(Place(folder, folder), self.name),
                foreign=found.foreign + len(seen.keys() - self.events),
                dead_letters_lost=found.dead_letters_lost,
                dead_letters_twice=found.dead_letters_twice,
            )
        return found

    def stored(self, table_type: str) -> list[int]:
        """The control offsets that the commits of a table say, in their order."""
        folder = self.folder(table_type)
        key = f"kafka.connect.offsets.calve.test.{self.name}.control.calve.test.{self.name}"
        said = (extra_of(instant).get(key) for instant in read_timeline(Place(folder, folder)).commits)
        return [json.loads(each)["0"] for each in said if each]

    def _record(self) -> tuple[int | None, bytes]:
        event, value = super()._record()
        if event is None:
            return event, value
        return event, json.dumps({**json.loads(value), "day": f"2026-01-{event % DAYS + 1:02}"}).encode()

    def _pipeline(self) -> dict[str, Any]:
        pipeline = super()._pipeline()
        created: dict[str, Any] = {"columns": {**COLUMNS, "day": "string"}}
        for table_type in TYPES:
            partitions = {"partition_by": ["day"]} if table_type == "merge_on_read" else {}
            table = {
                "name": f"faults.{self.name}_{table_type}",
                "format": "hudi",
                "hudi": {"type": table_type},
                "auto_create": {**created, **partitions},
            }
            pipeline["tables"].append(table)
        return {**pipeline, "hudi": {"warehouse": str(self.directory / "hudi")}}

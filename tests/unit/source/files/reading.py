"""A source of files as Calve uses it, without Kafka: its plans are read, and what it gives is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.sink_core.control.status import Blocker
from calve.sink_core.source.base import BadRow, Limits, Record, Rows, Work
from calve.sink_core.source.files.plan import partition_of
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.systems import FILES

ALL = Limits(1_000_000, 1_000_000_000)


@dataclass
class Reading:
    """What was read so far; `stored` are its source offsets, `rows` what there was at a time, `stuck` what tasks
    could not read on.
    """

    path: str
    options: dict[str, Any]
    stored: dict[FlatMap, FlatMap] = field(default_factory=dict[FlatMap, FlatMap])
    rows: list[Rows] = field(default_factory=list[Rows])
    stuck: list[Blocker] = field(default_factory=list[Blocker])

    def opened(self) -> OpenedSource:
        return OpenedSource(SourceSpec(FILES, {"path": self.path, "topic": "rows", **self.options}))

    def plan(self, limits: Limits = ALL) -> tuple[Work, ...]:
        with self.opened() as source:
            return source.plan(self.stored, limits)

    def read(self, limits: Limits = ALL) -> list[Record]:
        """One batch: the driver's part and that of one task."""
        given, first = self.plan(limits), len(self.rows)
        with self.opened() as driver, self.opened() as task:
            driver.prepare(self.stored)
            pending = dict[FlatMap, FlatMap]()
            for work in given:
                for rows in task.read(work):
                    if isinstance(rows, Blocker):
                        self.stuck.append(rows)
                        continue
                    self.rows.append(rows)
                    pending[work.partition] = rows.offset
            for partition, offset in task.update_offsets(pending).items():
                if offset is None:
                    del self.stored[partition]
                else:
                    self.stored[partition] = offset
        return [record for rows in self.rows[first:] for record in rows.records]

    def values(self, limits: Limits = ALL) -> list[str]:
        return [(record.value or b"").decode() for record in self.read(limits)]

    def waiting(self) -> str:
        with self.opened() as source:
            return source.waiting(self.stored).what

    def blockers(self) -> list[Blocker]:
        with self.opened() as source:
            return list(source.waiting(self.stored).blockers)

    def offset(self, name: str) -> dict[str, Any]:
        return dict(self.stored[partition_of(name)])

    @property
    def bad(self) -> list[BadRow]:
        return [bad for rows in self.rows for bad in rows.bad]

    @property
    def dropped(self) -> int:
        return sum(rows.dropped for rows in self.rows)


def reading(folder: Path | str, kind: str = "json_lines", **options: Any) -> Reading:
    return Reading(str(folder), {"format": kind, **options})


def append(file: Path, text: str | bytes, *, settled: bool = False) -> None:
    """`settled`: it has been so since 1970."""
    with file.open("ab") as opened:
        opened.write(text.encode() if isinstance(text, str) else text)
    if settled:
        os.utime(file, (1.0, 1.0))

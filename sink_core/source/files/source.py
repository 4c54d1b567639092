"""`Files`: the source of files in a folder, or at an address of fsspec.

Each file is a source partition, `{"file": name}`; `place.py` says what its offset is, and what is noticed of a file
that is not what it was. A file that is gone is forgotten by a `Work` of its own: there is nothing to read of it, and
`update_offsets` takes its offset away in the task that has it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from calve.sink_core.config.source_systems import Files as Settings
from calve.sink_core.source.base import Limits, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.files.listing import Address, Found
from calve.sink_core.source.files.parquet import Parquet
from calve.sink_core.source.files.place import Part, Place, require_same
from calve.sink_core.source.files.plan import Places, forgotten, partition_of, places_of, unread
from calve.sink_core.source.files.text import BLOCK, LOOK, Text, records_in
from calve.sink_core.source.flat_map import FlatMap, Primitive

MOST_FILES = 1000
"""So many are in one plan: the event of a transaction names all of its offsets, and is one record."""

_FORGET = FlatMap({"forget": True})


class Files:
    """Reads files that only grow, or never change, into one topic."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of the pipeline file. Raises ConfigError for an address that can't be used."""
        settings = self._settings = Settings.model_validate(options)
        if settings.format == "parquet":
            self._format: Text | Parquet = Parquet(settings.topic, settings.key)
        else:
            self._format = Text(settings.format, settings.topic, settings.key, settings.settle > 0)
        self._address = Address(settings.path, settings.options, compressed=settings.format == "parquet")
        self._gone = set[FlatMap]()

    @property
    def fingerprint(self) -> str:
        return f"{self._settings.format} of {self._address.shown}"

    def topics(self) -> Sequence[Topic]:
        return [Topic(self._settings.topic)]

    def prepare(self, stored: Stored) -> None:
        """Raises FindingError for a file that is not the one that was read, as far as it can be seen."""
        places = places_of(stored)
        for each in self._address.files():
            place = places.get(each.name)
            if place is not None and not place.is_of(each):
                with self._address.open(each.name, ahead=LOOK) as file:
                    require_same(file, each.name, place)

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        found, places, now = self._address.files(), places_of(stored), time.time()
        gone = map(partition_of, forgotten(found, places, now, self._settings.forget_after))
        work = [Work(partition, stored[partition], _FORGET) for partition in gone][:MOST_FILES]
        for each in self._as_of(limits.until, unread(found, places, now, self._settings.settle), places):
            if len(work) >= MOST_FILES or limits.max_bytes <= 0 or limits.max_records <= 0:
                break
            part = self._part(each, places.get(each.name), limits)
            if part is None:
                continue
            partition = partition_of(each.name)
            work.append(Work(partition, stored.get(partition), part.bound.offset, part.records))
            limits = Limits(limits.max_records - part.records, limits.max_bytes - part.bytes)
        return work

    def read(self, work: Work) -> Iterator[Rows]:
        if work.bound == _FORGET:
            self._gone.add(work.partition)
            return
        name = str(work.partition["file"])
        start = Place.of(name, work.start) if work.start is not None else None
        with self._address.open(name, ahead=4 * BLOCK) as file:
            yield from self._format.read(file, name, start, Place.of(name, work.bound))

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - those stay as they are
        return dict.fromkeys(self._gone)

    def acknowledge(self, committed: Stored) -> None:
        """Files are nobody's to let go of."""

    def waiting(self, stored: Stored) -> Waiting:
        """By the listing. It looks into files until one has a whole record: half of one is nothing to read."""
        places = places_of(stored)
        files = unread(self._address.files(), places, time.time(), self._settings.settle)
        until = json.dumps({each.name: each.size for each in files})
        least = Limits(1, 1)
        while files and self._part(files[0], places.get(files[0].name), least) is None:
            files.pop(0)
        sizes = [_size(each, places.get(each.name)) for each in files]
        what = f"{len(files):,} {'file' if len(files) == 1 else 'files'}, {sum(sizes):,} bytes"
        # Files come in the order of their last changes.
        since = files[0].mtime if files else None
        since_ms = None if since is None else round(since * 1000)
        return Waiting(sum(max(1, records_in(size)) for size in sizes), what, until=until, since_ms=since_ms)

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        """There is no connection that a file system of fsspec would let go of."""

    def _as_of(self, until: Primitive, files: Sequence[Found], places: Places) -> Iterator[Found]:
        """What was there to read of them when a run began; all where it isn't said."""
        sizes: dict[str, int] | None = json.loads(str(until)) if until is not None else None
        # Neither Parquet nor a file that is settled grows.
        grows = isinstance(self._format, Text) and not self._settings.settle
        for each in files:
            place = places.get(each.name)
            if sizes is None or (place is not None and not place.is_behind(each)) or not grows:
                if sizes is None or each.name in sizes:
                    yield each
            elif (place.position if place else 0) < (end := min(each.size, sizes.get(each.name, 0))):
                yield replace(each, size=end)

    def _part(self, found: Found, place: Place | None, limits: Limits) -> Part | None:
        if place is not None and not place.is_behind(found):
            # Changed, and no longer than what was read: it is looked at, and its offset then says so.
            bound = replace(place, size=found.size, mtime=found.mtime, etag=found.etag, ends=False, head="", tail="")
            return Part(bound, 1, 0)
        with self._address.open(found.name, ahead=LOOK) as file:
            return self._format.bound(file, found, place, limits)


def _size(found: Found, place: Place | None) -> int:
    """What is to be read, in bytes: of Parquet all of it."""
    return max(0, found.size - place.position) if place is not None and place.rows is None else found.size

"""`Files`: the source of files in a folder, or at an address of fsspec.

Each file is a source partition, `{"file": name}`; `place.py` says what its offset is, and what is noticed of a file
that is not what it was. A file that is gone is forgotten by a `Work` of its own: there is nothing to read of it, and
`update_offsets` takes its offset away in the task that has it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.source_systems import Files as Settings
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError, FindingError, TerminalError
from calve.sink_core.source.base import FORGET, Limits, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.files.listing import Address, Found, since_ms
from calve.sink_core.source.files.parquet import Parquet
from calve.sink_core.source.files.place import Part, Place, require_same
from calve.sink_core.source.files.plan import Places, forgotten, partition_of, places_of, renamed, unread
from calve.sink_core.source.files.text import BLOCK, LOOK, Text, records_in
from calve.sink_core.source.flat_map import FlatMap, Primitive

MOST_FILES = 1000
"""So many are in one plan: the event of a transaction names all of its offsets, and is one record."""

_LEAST = Limits(1, 1)
_SHOWN = 3


class Files:
    """Reads files that only grow, or never change, into one topic."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of the pipeline file. Raises ConfigError for an address that can't be used."""
        settings = self._settings = Settings.model_validate(options)
        if settings.format == "parquet":
            self._format: Text | Parquet = Parquet(settings.topic, settings.key)
        else:
            self._format = Text(settings.format, settings.topic, settings.key, settings.settle > 0)
        self._address = Address(
            settings.path,
            settings.options,
            compressed=settings.format == "parquet",
            followed=settings.follow_links,
        )
        self._gone = set[FlatMap]()

    @property
    def fingerprint(self) -> str:
        return f"{self._settings.format} of {self._address.shown}"

    def topics(self) -> Sequence[Topic]:
        return [Topic(self._settings.topic)]

    def prepare(self, stored: Stored) -> None:
        """Raises FindingError for a file that is not the one that was read, as far as it can be seen."""
        found = self._address.files()
        places, _ = self._known(found, stored)
        for each in found:
            place = places.get(each.name)
            if place is not None and not place.is_of(each):
                with suppress(FileNotFoundError, PermissionError), self._address.open(each.name, ahead=LOOK) as file:
                    require_same(file, each.name, place)

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        found, now = self._address.files(), time.time()
        places, begins = self._known(found, stored)
        gone = map(partition_of, forgotten(found, places_of(stored), now, self._settings.forget_after))
        work = [Work(partition, stored[partition], FORGET) for partition in gone][:MOST_FILES]
        files = unread(found, places, now, self._settings.settle, begins)
        for each in self._as_of(limits.until, files, places):
            if len(work) >= MOST_FILES or limits.max_bytes <= 0 or limits.max_records <= 0:
                break
            part = self._part(each, places.get(each.name), limits)
            if not isinstance(part, Part):
                continue
            partition, bound = partition_of(each.name), part.bound
            if each.name in begins:
                bound = replace(bound, begins=places[each.name].offset.json)
            work.append(Work(partition, stored.get(partition), bound.offset, part.records))
            limits = Limits(limits.max_records - part.records, limits.max_bytes - part.bytes)
        return work

    def read(self, work: Work) -> Iterator[Rows | Blocker]:
        if work.bound == FORGET:
            self._gone.add(work.partition)
            return
        name = str(work.partition["file"])
        bound = Place.of(name, work.bound)
        start = FlatMap.parsed(bound.begins) if bound.begins else work.start
        place = Place.of(name, start) if start is not None else None
        try:
            with self._address.open(name, ahead=4 * BLOCK) as file:
                yield from self._format.read(file, name, place, replace(bound, begins=""))
        except FindingError:
            raise
        except TerminalError as error:
            yield Blocker.of(name, error)
        except PermissionError as error:
            yield _forbidden(name, error)

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - those stay as they are
        return dict.fromkeys(self._gone)

    def acknowledge(self, committed: Stored) -> None:
        """Files are nobody's to let go of."""

    def waiting(self, stored: Stored) -> Waiting:
        """By the listing. It looks into files until one has a whole record: half of one is nothing to read."""
        found = self._address.files()
        places, begins = self._known(found, stored)
        files = unread(found, places, time.time(), self._settings.settle, begins)
        until = json.dumps({each.name: each.size for each in files})
        blockers = list[Blocker]()
        while files and not isinstance(part := self._part(files[0], places.get(files[0].name), _LEAST), Part):
            blockers += [part] if part is not None else []
            files.pop(0)
        sizes = [_size(each, places.get(each.name)) for each in files]
        what = f"{len(files):,} {'file' if len(files) == 1 else 'files'}, {sum(sizes):,} bytes{self._besides()}"
        # Files come in the order of their last changes.
        since = since_ms(files[0]) if files else None
        records = sum(max(1, records_in(size)) for size in sizes)
        return Waiting(records, what, until=until, since_ms=since, blockers=blockers)

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

    def _known(self, found: Sequence[Found], stored: Stored) -> tuple[dict[str, Place], frozenset[str]]:
        """How far each file was read, by the name that it has now; and the names that are to be stored so. Of a file
        that was renamed the new name goes on, and what has the old name by now begins.
        """
        stated = places_of(stored)
        places, begins, left = dict(stated), set[str](), set[str]()
        pairs = [(name, each) for name, each in renamed(found, stated) if self._is_same(each, stated[name])]
        # Of several names that a file had, the last one is that by which most was read.
        for name, each in sorted(pairs, key=lambda pair: stated[pair[0]].position):
            left.add(name)
            if each.name not in stated or stated[each.name].inode != each.inode:
                places[each.name] = stated[name]
                begins.add(each.name)
        for name in left.intersection(each.name for each in found) - begins:
            places[name] = Place(0)
            begins.add(name)
        return places, frozenset(begins)

    def _is_same(self, found: Found, place: Place) -> bool:
        """Whether a file of another name has the content that was read."""
        try:
            with self._address.open(found.name, ahead=LOOK) as file:
                require_same(file, found.name, place)
        except (FindingError, OSError):
            return False
        return True

    def _part(self, found: Found, place: Place | None, limits: Limits) -> Part | Blocker | None:
        """What is to be read of a file, or what keeps it from being read; None if nothing of it is whole."""
        if place is not None and not place.is_behind(found):
            # Changed, and no longer than what was read: it is looked at, and its offset then says so.
            now = replace(place, size=found.size, mtime=found.mtime, etag=found.etag, inode=found.inode)
            return Part(replace(now, ends=False, head="", tail=""), 1, 0)
        try:
            self._address.require_readable(found)
            with self._address.open(found.name, ahead=LOOK) as file:
                part = self._format.bound(file, found, place, limits)
                return part or self._format.held(file, found, place, time.time())
        except FindingError:
            raise
        except TerminalError as error:
            return Blocker.of(found.shown, error, since_ms(found))
        except PermissionError as error:
            return _forbidden(found.name, error)
        except FileNotFoundError:
            return None

    def _besides(self) -> str:
        """What is said of files that are not read."""
        others, links = self._address.others(), self._address.links
        met = f"; {len(others):,} more that source.files.path does not meet ({_first(others)})" if others else ""
        out = f"; {len(links):,} links out of the folder ({_first(links)}): see source.files.follow_links"
        return f"{met}{out}" if links else met


def _first(names: Sequence[str]) -> str:
    shown = ", ".join(name.encode(errors="backslashreplace").decode() for name in names[:_SHOWN])
    return f"{shown}, …" if len(names) > _SHOWN else shown


def _forbidden(name: str, error: PermissionError) -> Blocker:
    hint = "grant the user reading, or leave the file out by the pattern in source.files.path"
    return Blocker.of(name, ConfigError(f"{name}: {error.strerror or error}", hint=hint, code=Code.FILE_FORBIDDEN))


def _size(found: Found, place: Place | None) -> int:
    """What is to be read, in bytes: of Parquet all of it."""
    return max(0, found.size - place.position) if place is not None and place.rows is None else found.size

"""Which files are to be read or looked at, and which forgotten: from what is there and what is stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calve.sink_core.error_codes.source import NO_FILES_ADDRESS
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Stored
from calve.sink_core.source.files.listing import Found
from calve.sink_core.source.files.place import Place
from calve.sink_core.source.flat_map import FlatMap

Places = Mapping[str, Place]
"""How far each file was read, by its name."""


def partition_of(name: str) -> FlatMap:
    return FlatMap({"file": name})


def places_of(stored: Stored) -> dict[str, Place]:
    """Raises ConfigError for what is no offset of a file."""
    named = ((partition.get("file"), partition, offset) for partition, offset in stored.items())
    return {
        name: Place.of(name, offset)
        for name, partition, offset in named
        if isinstance(name, str) and partition == partition_of(name)
    }


def unread(found: Sequence[Found], places: Places, now: float, settle: float) -> list[Found]:
    """Files that have more than was read of them, or may be others than were read: those first that have not changed
    for longest. Raises ConfigError if that is to be waited for and nobody knows it.
    """
    wanted = list[Found]()
    for each in found:
        place = places.get(each.name)
        if not each.size if place is None else place.is_of(each) and not place.is_behind(each):
            continue
        if settle and each.mtime is None:
            raise ConfigError(
                f"{each.name}: its file system doesn't say when it changed",
                hint="remove source.files.settle",
                code=NO_FILES_ADDRESS,
            )
        if not settle or (each.mtime or 0.0) + settle <= now:
            wanted.append(each)
    return sorted(wanted, key=lambda each: (each.mtime or 0.0, each.name))


def forgotten(found: Sequence[Found], places: Places, now: float, forget_after: float) -> list[str]:
    """Files that are gone and changed last so many seconds ago. None while there is no file at all: a folder that is
    not mounted looks like that.
    """
    there = {each.name for each in found}
    gone = (
        name
        for name, place in sorted(places.items())
        if name not in there and place.mtime is not None and place.mtime + forget_after <= now
    )
    return list(gone) if there else []

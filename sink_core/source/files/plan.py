"""Which files are to be read or looked at, and which forgotten: from what is there and what is stored. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Stored
from calve.sink_core.source.files.listing import Found
from calve.sink_core.source.files.place import MARKED, Place
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


def renamed(found: Sequence[Found], places: Places) -> list[tuple[str, Found]]:
    """Names under which files were read that have another one by now, with these files, as far as a listing tells: by
    the file's own number. Its content has the last word, as numbers are given again.

    A file that is as long as what was read of it must not have changed either, and one that has grown must have been
    more than a few lines: two files may begin alike.
    """
    by_number = {each.inode: each for each in found if each.inode is not None}
    there = {each.name: each.inode for each in found}
    pairs = ((name, by_number.get(place.inode or 0)) for name, place in sorted(places.items()))
    return [
        (name, each)
        for name, each in pairs
        if each is not None and name != each.name and there.get(name) != each.inode
        if (place := places[name]).head
        if each.mtime == place.mtime or each.size > place.marked >= MARKED
    ]


def unread(
    found: Sequence[Found], places: Places, now: float, settle: float, begins: Collection[str] = ()
) -> list[Found]:
    """Files that have more than was read of them, or may be others than were read, or whose place is to be stored by
    another name (`begins`): those first that have not changed for longest. Raises ConfigError if that is to be waited
    for and nobody knows it.
    """
    wanted = list[Found]()
    for each in found:
        place = places.get(each.name)
        done = not each.size if place is None else place.is_of(each) and not place.is_behind(each)
        if done and each.name not in begins:
            continue
        if settle and each.mtime is None:
            raise ConfigError(
                f"{each.name}: its file system doesn't say when it changed",
                hint="remove source.files.settle",
                code=Code.NO_FILES_ADDRESS,
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

"""What a Hudi table says of itself in files: its properties and the timeline. Read without Hudi's code.

Sources: Hudi's technical specification, "Timeline" (https://hudi.apache.org/tech-specs/#timeline), of table versions 8
and 9: `<instant>.<action>.requested`, `<instant>.<action>.inflight` (`<instant>.inflight` for a commit), and
`<instant>_<completion>.<action>` with the metadata as an Avro file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import fastavro
import javaproperties

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import describe
from calve.sink_core.errors import TableUnusable
from calve.sink_core.hudi.files.place import Place

COMMITS = ("commit", "deltacommit", "replacecommit")
"""Actions that change what a table holds, once completed; clustering completes as the last, compaction as the first."""

_FORMAT, _DIGITS = "%Y%m%d%H%M%S", 17
_EPOCH = datetime.fromtimestamp(0, UTC)
_NAME = re.compile(r"(\d{17})(?:_(\d{17}))?\.([a-z]+)(?:\.(requested|inflight))?")
REMEMBERED = 16_384
"""Completed instants of which is kept what they said."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A file of a table's timeline. `completed` is the moment of completion, empty for one that is pending."""

    requested: str
    action: str
    state: str
    completed: str
    path: Path
    table: str = ""

    @property
    def number(self) -> int:
        """Its moment as digits, which tell it in the control log."""
        return int(self.requested)


@dataclass(frozen=True, slots=True)
class Timeline:
    """All files of the active timeline, those completed in the order of their completion."""

    instants: tuple[Instant, ...]

    @property
    def commits(self) -> tuple[Instant, ...]:
        """The completed ones that say what the table holds."""
        return tuple(each for each in self.instants if each.completed and each.action in COMMITS)

    def pending(self, actions: Collection[str]) -> tuple[Instant, ...]:
        """Those of some actions that were begun and are not completed, one for each instant."""
        completed = {each.requested for each in self.instants if each.completed}
        begun = {e.requested: e for e in self.instants if e.action in actions and e.requested not in completed}
        return tuple(begun.values())

    def at(self, requested: str) -> tuple[Instant, ...]:
        """What there is of one instant."""
        return tuple(each for each in self.instants if each.requested == requested)


def read_timeline(place: Place) -> Timeline:
    """The active timeline as it is, without files that vanish meanwhile. Raises TableUnusable if there is none."""
    try:
        found = [_instant(path, place.name) for path in place.timeline.iterdir()]
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _damaged(place.name, place.timeline, describe(error)) from None
    ordered = sorted(filter(None, found), key=lambda each: (each.completed or "~", each.requested, each.state))
    return Timeline(tuple(ordered))


def read_properties(place: Place) -> Mapping[str, str] | None:
    """A table's properties; None if there is no table. Raises TableUnusable for a file that has none."""
    try:
        text = place.properties.read_text(encoding="latin-1")
        found = cast("Mapping[str, str]", javaproperties.loads(text))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise _damaged(place.name, place.properties, describe(error)) from None
    if not found:
        raise _damaged(place.name, place.properties, f"{len(text):,} bytes, and no property")
    return found


def is_archived(place: Place) -> bool:
    """Whether instants have left the active timeline."""
    history = place.timeline / "history"
    return history.is_dir() and any(history.iterdir())


def metadata_of(instant: Instant) -> Mapping[str, Any]:
    """All that a completed commit says: `extraMetadata`, and `partitionToWriteStats` by partition. Raises TableUnusable
    for a file that can't be read, such as what a full disk or a copy that was broken off leaves.
    """
    try:
        with instant.path.open("rb") as file:
            return cast("Mapping[str, Any]", next(iter(fastavro.reader(file))))
    except FileNotFoundError:
        # Archived meanwhile: the next look does without it.
        raise
    except Exception as error:  # noqa: BLE001 - whatever fastavro makes of broken bytes, it is about this file
        size = instant.path.stat().st_size
        why = describe(error) if size else "it is empty"
        raise _damaged(instant.table, instant.path, why) from None


def extra_of(instant: Instant) -> Mapping[str, str]:
    """The extra metadata of a completed commit."""
    status = instant.path.stat()
    return _extra_of(instant, status.st_mtime_ns, status.st_ino)


def instant_text(milliseconds: int) -> str:
    """As the timeline writes a moment, in UTC."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return f"{moment.strftime(_FORMAT)}{milliseconds % 1000:03}"


def instant_ms(text: str) -> int:
    """The reverse of `instant_text`."""
    moment = datetime.strptime(text[:-3], _FORMAT).replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int(text[-3:])


@lru_cache(REMEMBERED)
def _extra_of(instant: Instant, _changed_ns: int, _inode: int) -> Mapping[str, str]:
    """A completed instant doesn't change; another table at its place may have another."""
    return cast("Mapping[str, str]", metadata_of(instant).get("extraMetadata") or {})


def _damaged(table: str, path: Path, why: str) -> TableUnusable:
    return TableUnusable(
        f"{table}: {path} can't be read: {why}",
        hint="put the file back from a copy of the table; is there none: remove a commit's file, and the next run says "
        "what the table then lacks; of hoodie.properties Hudi keeps hoodie.properties.backup beside it",
        code=Code.DAMAGED_HUDI_TABLE,
    )


def _instant(path: Path, table: str) -> Instant | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    requested, completed, action, state = match.groups()
    if action == "inflight":
        action, state = "commit", "inflight"
    return Instant(requested, action, state or "completed", completed or "", path, table)

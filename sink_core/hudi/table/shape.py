"""Which files a Hudi table has, and how many."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calve.sink_core.hudi.files.place import HOODIE, Place
from calve.sink_core.hudi.files.timeline import Instant, Timeline, metadata_of

DATA_FILES, REPLACED, LOG_FILES, ACTIVE = "data_files", "replaced_files", "log_files", "active_instants"
BASE_FILE = re.compile(r"([^_]+)_([^_]+)_(\d{17})\.parquet")
"""File id, write token and instant."""

_LOG_FILE = re.compile(r"\.([^._]+)_(\d{17})\.log\.\d+_[\d-]+")
"""File id and instant."""


@dataclass(frozen=True, slots=True)
class FileOnDisk:
    """A base file; `size` in bytes."""

    path: Path
    file_id: str
    instant: str
    size: int
    modified_s: float


def partitions_of(place: Place, timeline: Timeline) -> Mapping[str, Sequence[FileOnDisk]]:
    """The base files by partition, those of completed instants only, of each file id the last, and none that a
    clustering has replaced.
    """
    return _partitions(place, timeline, base_files(place), _replaced(timeline))


def _partitions(
    place: Place, timeline: Timeline, files: Sequence[FileOnDisk], replaced: Collection[str]
) -> Mapping[str, Sequence[FileOnDisk]]:
    completed = {instant.requested for instant in timeline.commits}
    first = min(completed, default="")
    found: dict[str, dict[str, FileOnDisk]] = defaultdict(dict)
    for file in files:
        # Of an instant that was archived the timeline says nothing: it was completed.
        if file.file_id not in replaced and (file.instant in completed or file.instant < first):
            of = found[str(file.path.parent.relative_to(place.folder))]
            if file.file_id not in of or of[file.file_id].instant < file.instant:
                of[file.file_id] = file
    return {name: list(of.values()) for name, of in found.items()}


def base_files(place: Place) -> Sequence[FileOnDisk]:
    """Every base file there is, whoever names it."""
    return _base_files(_files(place))


def _base_files(paths: Sequence[Path]) -> Sequence[FileOnDisk]:
    return [
        FileOnDisk(path, match[1], match[3], status.st_size, status.st_mtime)
        for path in paths
        if (match := BASE_FILE.fullmatch(path.name)) and (status := path.stat())
    ]


def shape(place: Place, timeline: Timeline) -> dict[str, int]:
    """Numbers of base files, of such as are replaced and still there, of log files that readers merge with them, and of
    commits in the active timeline.
    """
    paths, replaced = _files(place), _replaced(timeline)
    bases = _base_files(paths)
    partitions = _partitions(place, timeline, bases, replaced)
    live = {file.file_id: file.instant for of in partitions.values() for file in of}
    logs = [match.groups() for path in paths if (match := _LOG_FILE.fullmatch(path.name))]
    read = sum(file_id not in replaced and instant > live.get(file_id, "") for file_id, instant in logs)
    return {DATA_FILES: len(live), REPLACED: len(bases) - len(live), LOG_FILES: read, ACTIVE: len(timeline.commits)}


def _replaced(timeline: Timeline) -> set[str]:
    """Ids of the file groups that completed clusterings have put others in place of."""
    return {file_id for each in timeline.commits for file_id in _replaced_by(each)}


def _replaced_by(instant: Instant) -> Iterator[str]:
    if instant.action == "replacecommit":
        for file_ids in (metadata_of(instant).get("partitionToReplaceFileIds") or {}).values():
            yield from file_ids


def _files(place: Place) -> Sequence[Path]:
    folder = place.folder
    return [path for path in folder.rglob("*") if HOODIE not in path.relative_to(folder).parts and path.is_file()]

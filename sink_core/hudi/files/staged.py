"""Base files of a batch as plain values, their names, and the staged manifest that names them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError
from calve.sink_core.hudi.files.place import Place, link, put
from calve.sink_core.tables.batch import ManifestRef, TableOutput

PARTITION_FILE = ".hoodie_partition_metadata"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""In place of null and of empty text in a partition's path."""

# Hive's, as `PartitionPathEncodeUtils.escapePathName` has them.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_MOST_IN_NAME = 255
"""Bytes that file systems let a folder's name have."""

_WRITE_TOKEN = "0-0-0"  # noqa: S105 - Hudi's name of the task; a second try has other file ids


_INSTANT = re.compile(r"[0-9]{8,}")
_FOLDER = re.compile(r"calve-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:-\w+)*")


@dataclass(frozen=True, slots=True)
class HudiFile:
    """A base file: its name within the path of its `partition`, empty for a table without. `size` in bytes. Until it is
    in the table it lies in `folder`, below the table's staged files.
    """

    file_id: str
    name: str
    folder: str
    partition: str
    rows: int
    size: int

    @property
    def path(self) -> str:
        """Below the table's folder."""
        return f"{self.partition}/{self.name}" if self.partition else self.name

    @property
    def instant(self) -> str:
        """What it is committed under."""
        return self.name.removesuffix(".parquet").rpartition("_")[2]


@dataclass(frozen=True, slots=True)
class Staged:
    """What a batch holds for one table: the instant that it is committed under, and its files. If these are `changes`
    of rows, Hudi brings them in under an instant of its own, and they never come into the table.
    """

    instant: str
    files: tuple[HudiFile, ...]
    changes: bool = False


NOTHING = Staged("", ())
"""What a range job has that found nothing to write."""


def new_file_id() -> str:
    """As Hudi's own: indexes of records take them for UUIDs."""
    return f"{uuid.uuid4()}-0"


def file_name(file_id: str, instant: str) -> str:
    return f"{file_id}_{_WRITE_TOKEN}_{instant}.parquet"


def partition_path(names: Sequence[str], values: Sequence[object]) -> str:
    """In Hive's style, as Hudi's key generators write it: `carrier=UA/day=2026-11-27`."""
    return "/".join(f"{name}={_escaped(value)}" for name, value in zip(names, values, strict=True))


def too_long_for_paths(columns: Mapping[str, pa.Array]) -> dict[int, str]:
    """What is wrong with rows, by their place, of which no folder can be named by their partition. `columns` are all
    that partitions go by, by name.
    """
    wrong: dict[int, str] = {}
    for name, column in columns.items():
        values = column.dictionary_encode() if pa.types.is_large_string(column.type) else None
        room, sizes = _MOST_IN_NAME - len(f"{name}="), dict[int, int]()
        for at, value in enumerate(values.dictionary.to_pylist() if values else ()):
            if (size := len(_escaped(value).encode())) > room:
                sizes[at] = size
        for row, at in enumerate(values.indices.to_pylist() if values and sizes else ()):
            if at in sizes:
                text = f"{sizes[at]:,} bytes in the path of a partition, where a folder's name has {room} at most"
                wrong.setdefault(row, f"{name}: {text}")
    return wrong


def _escaped(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text) or NO_VALUE


def write_staged(
    place: Place, batch_id: str, table: str, table_uuid: str, files: Sequence[HudiFile], changes: int | None = None
) -> TableOutput:
    """The table's part of a batch, its manifest written; without one if there are no files. `changes`: as in
    `TableOutput`.
    """
    if not files:
        return TableOutput(table, table_uuid, 0, changes=changes)
    path = place.staged / f"calve-{batch_id}" / f"manifest-{uuid.uuid4()}.json"
    said = {"instant": files[0].instant, "files": [asdict(file) for file in files], "changes": changes is not None}
    content = json.dumps(said).encode()
    put(content, path)
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    digest = hashlib.sha256(content).hexdigest()
    ref = ManifestRef(str(path), len(content), digest, 0, 0, len(files), rows, size, ())
    return TableOutput(table, table_uuid, 0, (ref,), changes)


def read_staged(place: Place, ref: ManifestRef) -> Staged:
    """Raises ProtocolError for a manifest that is gone, is not the one that was published, or names what is not among
    the table's staged files: whoever may write to the control topic might have forged it.
    """
    path = Path(ref.path)
    if not (_FOLDER.fullmatch(path.parent.name) and _is_plain(path.name) and _is_below(path, place.staged)):
        raise _foreign(place, "an event", ref.path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise gone(ref.path) from None
    if (found := hashlib.sha256(content).hexdigest()) != ref.sha256:
        raise ProtocolError(f"{ref.path}: published with SHA-256 {ref.sha256}, found {found}", code=Code.STAGED_GONE)
    said = json.loads(content)
    staged = Staged(said["instant"], tuple(HudiFile(**file) for file in said["files"]), said["changes"])
    if not _INSTANT.fullmatch(staged.instant):
        raise _foreign(place, ref.path, f"the instant {staged.instant!r}")
    for file in staged.files:
        if not _is_staged(place, file):
            named = f"{file.name!r} of {file.folder!r} for partition {file.partition!r}"
            raise _foreign(place, ref.path, named)
    return staged


def _is_staged(place: Place, file: HudiFile) -> bool:
    """Whether the file would lie among the table's staged files, and come into a partition of it."""
    parts = file.partition.split("/") if file.partition else []
    return (
        _FOLDER.fullmatch(file.folder) is not None
        and all(map(_is_plain, (file.name, *parts)))
        and _is_below(place.staged / file.folder / file.name, place.staged)
        and _is_below(place.folder / file.path, place.folder)
    )


def _is_plain(name: str) -> bool:
    """Whether a path that has it as one of its parts goes one folder down, and not to what begins with a dot, as
    Hudi's own files do.
    """
    return not name.startswith(".") and not {"/", "\0"} & set(name) and bool(name)


def _is_below(path: Path, folder: Path) -> bool:
    """Also by where links lead, of which an operator may have put the folder itself behind one."""
    return path.resolve().is_relative_to(folder.resolve())


def _foreign(place: Place, named_by: str, path: str) -> ProtocolError:
    return ProtocolError(
        f"{place.name or place.folder.name}: {named_by} names {path}; staged files are below {place.staged}, each in a "
        f"folder of its batch, and come into a partition of {place.folder}",
        hint=Code.STAGED_FOREIGN.explanation.remedy,
        code=Code.STAGED_FOREIGN,
    )


def put_in_place(place: Place, staged: Staged) -> None:
    """Give staged files their names in the table; whatever a former try has put there stays. No reader sees a file
    whose instant is not completed. Raises ProtocolError for one that is gone.
    """
    for partition in sorted({file.partition for file in staged.files}):
        depth = len(partition.split("/")) if partition else 0
        text = f"#partition metadata\ncommitTime={staged.instant}\npartitionDepth={depth}\n"
        put(text.encode(), place.folder / partition / PARTITION_FILE)
    for file in staged.files:
        path, name = place.staged / file.folder / file.name, place.folder / file.path
        try:
            link(path, name)
        except FileNotFoundError:
            if not name.exists():
                raise gone(path) from None


def changes_in(place: Place, staged: Staged) -> list[Path]:
    """Where the staged files are that Hudi brings in. Raises ProtocolError for one that is gone."""
    paths = [place.staged / file.folder / file.name for file in staged.files]
    if lost := next((path for path in paths if not path.exists()), None):
        raise gone(lost)
    return paths


def staged_batches(place: Place) -> dict[Path, str]:
    """The folders of staged files, and the batch that each is of."""
    try:
        found = [(path, _FOLDER.fullmatch(path.name)) for path in place.staged.iterdir()]
    except FileNotFoundError:
        return {}
    return {path: match[1] for path, match in found if match}


def remove_staged(place: Place, batches: Collection[str]) -> None:
    """Forget the staged names of files that are in the table, of these batches."""
    for folder, batch_id in staged_batches(place).items():
        if batch_id in batches:
            shutil.rmtree(folder, ignore_errors=True)


def gone(path: str | Path) -> ProtocolError:
    return ProtocolError(
        f"{path}: published, and gone",
        hint="put it back; the batches that it is of are not committed without it",
        code=Code.STAGED_GONE,
    )

"""How far a file was read, and by what one sees that it is still the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import IO, Annotated

from pydantic import Field, TypeAdapter, ValidationError

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, FindingError
from calve.sink_core.findings import FILE_CHANGED
from calve.sink_core.source.files.listing import Found
from calve.sink_core.source.flat_map import FlatMap

Count = Annotated[int, Field(ge=0)]

MARKED = 4096
"""So many bytes at each end of what was read are held against what is there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A source offset of a file, or the bound of a plan, which has no checksums.

    `position` is the next byte to read; of Parquet the next row, and `rows` how many there are. `size`, `mtime` and
    `etag` are those of the file when the plan was made. `head` and `tail` are checksums over the first and the last
    `MARKED` bytes of what was read; of Parquet, of the whole file. `ends`: the last line needs no newline. `lines` is
    how many ends of lines were read, None where nobody counted. `inode` is the file's own number where it has one.
    `begins`, of a bound, is the offset to begin behind, as JSON, where that is not what is stored by this name.
    """

    position: Count
    size: Count = 0
    mtime: float | None = None
    etag: str | None = None
    rows: Count | None = None
    ends: bool = False
    lines: Count | None = None
    inode: int | None = None
    begins: str = ""
    head: str = ""
    tail: str = ""

    @classmethod
    def of(cls, name: str, offset: FlatMap) -> Place:
        """Raises ConfigError for what is no offset of a file. One that has a position alone is one."""
        try:
            return _PLACE.validate_json(offset.json, strict=True)
        except ValidationError as error:
            raise ConfigError(
                f"{name}: {offset.json} is no offset of a file",
                hint='give it {"position": BYTES} by calve positions set, or read it all again by positions reset',
                code=Code.NO_FILE_OFFSET,
            ) from error

    @property
    def offset(self) -> FlatMap:
        return FlatMap(
            {key: value for key, value in asdict(self).items() if value not in (None, "") and value is not False}
        )

    @property
    def marked(self) -> int:
        """The bytes that its checksums are of."""
        return self.position if self.rows is None else self.size

    def is_of(self, found: Found) -> bool:
        """Whether nothing says that the file has changed since."""
        other = None not in (self.inode, found.inode) and self.inode != found.inode
        return not other and (self.size, self.mtime, self.etag) == (found.size, found.mtime, found.etag)

    def is_behind(self, found: Found) -> bool:
        """Whether there is more to read."""
        return self.position < (found.size if self.rows is None else self.rows)


_PLACE = TypeAdapter(Place)


@dataclass(frozen=True, slots=True)
class Part:
    """What a plan takes of a file: up to `bound`, with how many records and bytes that are, both estimates."""

    bound: Place
    records: int
    bytes: int


def marks(head: bytes, tail: bytes) -> tuple[str, str]:
    """The checksums of what begins with `head` and ends with `tail`."""
    return _checksum(head[:MARKED]), _checksum(tail[-MARKED:])


def marks_of(file: IO[bytes], end: int) -> tuple[str, str]:
    """Those of the first `end` bytes of a file."""
    return marks(read_at(file, 0, min(end, MARKED)), read_at(file, max(0, end - MARKED), end))


def read_at(file: IO[bytes], start: int, end: int) -> bytes:
    """Bytes `[start, end)`; fewer where the file ends before."""
    file.seek(start)
    found = b""
    while len(found) < end - start and (more := file.read(end - start - len(found))):
        found += more
    return found


def require_same(file: IO[bytes], name: str, place: Place) -> None:
    """Raise FindingError if the file is not one that was read up to this place and has only grown since.

    What is noticed: it has fewer bytes than were read (of Parquet: another size), or others at either end of these.
    """
    size = file.seek(0, 2)
    if size < place.marked or (place.rows is not None and size != place.size):
        raise changed(name, f"{place.marked:,} bytes", f"{size:,} bytes")
    if place.head and (found := marks_of(file, place.marked)) != (place.head, place.tail):
        upto = f"for its first {place.marked:,} bytes"
        raise changed(name, f"checksums {place.head} and {place.tail} {upto}", f"{found[0]} and {found[1]}")


def changed(name: str, stored: str, found: str) -> FindingError:
    return FILE_CHANGED.of(name, stored=stored, found=found).error()


def _checksum(of: bytes) -> str:
    return blake2b(of, digest_size=8).hexdigest()

"""Files of lines that grow: JSON lines, and CSV with its records. Whole ones only, block by block.

An end of line within quotes ends no record of CSV. Quotes begin a field only where they are its first character, as
Python's `csv` and most others read it: a quote within an unquoted field is a character like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Literal, NamedTuple

from calve.sink_core.codes import Code
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import FindingError, TerminalError
from calve.sink_core.source.base import BadRow, Limits, Record, Rows
from calve.sink_core.source.files.listing import Found, since_ms
from calve.sink_core.source.files.place import MARKED, Part, Place, changed, marks, read_at, require_same
from calve.sink_core.source.files.values import MOST_RECORD, Gathered, csv_fields, json_object, key_of, key_of_line
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.json_values import compact

BLOCK, LOOK = 2**20, 2**16
"""So many bytes are read at a time, and where only the next record is looked for."""

OPEN_S = 60.0
"""A quote that is open in a file that has not changed for so long is told."""

A_RECORD = 256
"""What a record is taken to have, in bytes, where nobody has counted."""

_BOM = b"\xef\xbb\xbf"
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\n]*+|(?!")[^,\n]*+)'
# Possessive: what is not whole yet is found to be so in one go, however long it is.
_RECORD = {
    "json_lines": re.compile(rb"[^\n]*+\n"),
    "csv": re.compile(rb"(?:%b)?+(?:%b,)*+%b\n" % (_BOM, _FIELD, _FIELD)),
}


class _Where(NamedTuple):
    """Where a record begins: `line` counts from 1, None where nobody has counted."""

    name: str
    position: int
    line: int | None

    @property
    def place(self) -> FlatMap:
        counted = {} if self.line is None else {"line": self.line}
        return FlatMap({"file": self.name, "position": self.position, **counted})


@dataclass(frozen=True, slots=True)
class Text:
    """Reads files of lines into one topic. `settled`: files are those that have not changed for a while, whose last
    line needs no newline.
    """

    format: Literal["json_lines", "csv"]
    topic: str
    key: Sequence[str]
    settled: bool

    def bound(self, file: IO[bytes], found: Found, start: Place | None, limits: Limits) -> Part | None:
        """None if no record is whole. At least the next record, however much that is. Raises as `read`."""
        begin = start.position if start else 0
        # A small block: most often it has a whole record.
        csv = self.format == "csv"
        first = next(whole_records(file, found.name, begin, found.size, csv=csv, block=LOOK), None)
        if first is None and not (self.settled and begin < found.size):
            return None
        least = first[0] + len(first[1]) if first else found.size
        room = min(limits.max_bytes, limits.max_records * A_RECORD)
        end = max(least, min(found.size, begin + room))
        ends = self.settled and end == found.size
        bound = Place(end, found.size, found.mtime, found.etag, ends=ends, inode=found.inode)
        if csv and begin == 0:
            self._header(file, found.name, bound)
        return Part(bound, records_in(end - begin), end - begin)

    def held(self, file: IO[bytes], found: Found, start: Place | None, now: float) -> Blocker | None:
        """What holds a file back that has no whole record: a quote that nobody has closed for a while."""
        begin = start.position if start else 0
        if self.format != "csv" or b"\n" not in read_at(file, begin, found.size):
            return None
        if found.mtime is not None and found.mtime + OPEN_S > now:
            return None
        line = 1 + (_lines_before(file, begin) if start is None or start.lines is None else start.lines)
        return Blocker(
            found.name,
            f"a quote of the record at line {line:,} is not closed: {found.size - begin:,} bytes from there on wait",
            "close it, or write it twice where it is no quote; with source.files.settle the rest is one dead letter",
            since_ms(found),
        )

    def read(self, file: IO[bytes], name: str, start: Place | None, bound: Place) -> Iterator[Rows]:
        """From `start` up to `bound`, or the last whole record before it.

        Raises FindingError for a file that is not the one that was read up to `start`, or not as long any more.
        """
        begin = start.position if start else 0
        if start is not None:
            require_same(file, name, start)
            _require_ended(file, name, begin)
        header = self._header(file, name, bound) if self.format == "csv" else None
        head, tail = read_at(file, 0, min(bound.position, MARKED)), read_at(file, max(0, begin - MARKED), begin)
        gathered, end, taken = Gathered(), begin, list[bytes]()
        lines = start.lines if start else 0

        def rows() -> Rows:
            nonlocal tail
            tail = b"".join((tail, *taken))[-MARKED:]
            taken.clear()
            marked = marks(head[:end], tail)
            place = replace(bound, position=end, ends=False, lines=lines, head=marked[0], tail=marked[1])
            return gathered.rows(place.offset)

        try:
            for at, raw in whole_records(file, name, begin, bound.position, csv=header is not None, ends=bound.ends):
                end = at + len(raw)
                taken.append(raw)
                if at > 0 or header is None:
                    where = _Where(name, at, None if lines is None else lines + 1)
                    gathered.add(self._made(where, raw if at else raw.removeprefix(_BOM), header), len(raw))
                if lines is not None:
                    lines += raw.count(b"\n")
                if gathered.is_full:
                    yield rows()
        except TerminalError as error:
            if taken and not isinstance(error, FindingError):
                # The next plan begins at what can't be read.
                yield rows()
            raise
        if taken or end == begin:
            # Also where nothing was to be read: the offset then says that the file was looked at.
            yield rows()

    def _made(self, where: _Where, raw: bytes, header: Sequence[str] | None) -> Record | BadRow | None:
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if not (line.strip() if header is None else line):
            return None
        # A place costs more than a small record does, which every topic takes.
        at = where.place if len(raw) > LOOK else None
        try:
            if header is None:
                return Record(self.topic, key_of_line(json_object(line.decode()), self.key), line, where=at)
            fields = csv_fields(line.decode())
            if len(fields) != len(header):
                raise ValueError(f"{len(fields)} fields, where the header has {len(header)}")
            row = dict(zip(header, fields, strict=True))
            return Record(self.topic, key_of(row, self.key), compact(row), where=at)
        except ValueError as error:
            return BadRow(line, str(error), where.place)

    def _header(self, file: IO[bytes], name: str, bound: Place) -> list[str]:
        """Raises TerminalError for one that names no fields, or not those of the key."""
        records = whole_records(file, name, 0, bound.position, csv=True, ends=bound.ends, block=LOOK)
        _, raw = next(records, (0, b""))
        try:
            fields = csv_fields(raw.removeprefix(_BOM).decode().removesuffix("\n").removesuffix("\r"))
            if not fields or "" in fields or len(set(fields)) < len(fields):
                raise ValueError(f"its header does not name each field once: {fields}")
            key_of(dict.fromkeys(fields), self.key)
        except ValueError as error:
            raise TerminalError(
                f"{name}: {error}",
                hint="correct the file's first line, or leave the file out by the pattern in source.files.path",
                code=Code.FILE_OTHER_FORMAT,
            ) from error
        return fields


def _lines_before(file: IO[bytes], position: int) -> int:
    return sum(read_at(file, at, min(at + BLOCK, position)).count(b"\n") for at in range(0, position, BLOCK))


def records_in(size: int) -> int:
    """How many records so many bytes are taken to be."""
    return -(-size // A_RECORD)


def whole_records(
    file: IO[bytes], name: str, start: int, end: int, *, csv: bool, ends: bool = False, block: int = BLOCK
) -> Iterator[tuple[int, bytes]]:
    """The position of each whole record in bytes `[start, end)`, and its bytes, the end of line with them.

    `ends`: what is left at the end counts as one too. Raises FindingError for a file that ends before, TerminalError
    for a record of more than `MOST_RECORD` bytes.
    """
    pattern = _RECORD["csv" if csv else "json_lines"]
    at, read, rest = start, start, b""
    while read < end:
        more = read_at(file, read, min(read + block, end))
        if not more:
            raise changed(name, f"{end:,} bytes", f"{read:,} bytes")
        # The longer a record, the more is read of it at a time: all of it is gone through each time.
        read, block = read + len(more), max(block, min(2 * block, BLOCK))
        buffer, here = rest + more, 0
        while found := pattern.match(buffer, here):
            yield at, found[0]
            at, here = at + found.end() - here, found.end()
        rest = buffer[here:]
        if len(rest) > MOST_RECORD:
            raise TerminalError(
                f"{name}: no record ends within {MOST_RECORD:,} bytes from byte {at:,} on",
                hint="correct the file, or leave it out by the pattern in source.files.path",
                code=Code.FILE_RECORD_TOO_LONG,
            )
    if ends and rest:
        yield at, rest


def _require_ended(file: IO[bytes], name: str, position: int) -> None:
    """Raise FindingError if a last line that had no newline, and was taken to be whole, goes on."""
    around = read_at(file, max(0, position - 1), position + 2)
    if position and not around.startswith(b"\n") and len(around) > 1 and not around[1:].startswith((b"\n", b"\r\n")):
        raise changed(name, f"a last line that ends at byte {position:,}", "that it goes on there")

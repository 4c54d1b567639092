"""Protobuf schemas: their text compiled, and the message a value holds.

Registries hand out text, and some of them nothing else, so it is protoc that reads it. In a process of its own: it
prints what is wrong with a text, and takes a few tenths of a second once for each schema and worker.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError
from calve.sink_core.packed import Int64s, Packed
from calve.sink_core.records.columns.budget import COMPILE_BYTES, COMPILE_CPU_S
from calve.sink_core.records.decode.framing import Framing
from calve.sink_core.records.protobuf.known import known_files

_ROOT = "calve-root.proto"
_COMPILED_KEPT = 256
_DEEPEST = 64
_LAST_SHIFT = 63
_SHOWN_CHARACTERS = 150
_PROTOC = f"""
import resource, runpy
of = ((resource.RLIMIT_CPU, {COMPILE_CPU_S}), (resource.RLIMIT_AS, {COMPILE_BYTES}), (resource.RLIMIT_CORE, 0))
for kind, most in of:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""
"""protoc, which ends itself by a signal for a text that it takes too long for."""
_BY_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
# What protoc's libraries log beside its own words.
_LOGGED = re.compile(r"WARNING: |[IWEF]\d{4} ")


@dataclass(frozen=True, slots=True, eq=False)
class ProtoFile:
    """A schema's file, which may define several messages."""

    name: str
    file: FileDescriptor = field(repr=False)

    @property
    def unfit(self) -> str | None:
        """Why values can't be rows; None if they can."""
        return None if self.file.message_types_by_name else f"{self.name} defines no message"


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema:
    """The message that values are. `parse` makes one of its bytes and raises DecodeError."""

    name: str
    descriptor: Descriptor = field(repr=False)
    parse: Callable[[bytes], Any] = field(repr=False)

    @property
    def unfit(self) -> str | None:
        """Why values can't be rows; None if they can."""
        return None


class Messages:
    """The messages of values in Confluent's wire format: behind the schema's id stands which of its messages it is."""

    def __init__(
        self, schemas: Framing[ProtoFile], checked: Callable[[MessageSchema], MessageSchema] = lambda schema: schema
    ) -> None:
        """`checked` raises ValueError for a message that can't be read."""
        self._schemas, self._checked = schemas, checked
        self._by_header: dict[bytes, MessageSchema] = {}
        self._by_path: dict[tuple[bytes, tuple[int, ...]], MessageSchema | str] = {}

    @property
    def header_bytes(self) -> int:
        """Of the part that tells schemas apart."""
        return self._schemas.header_bytes

    def writer_of(self, value: bytes) -> MessageSchema:
        """As `Framing.writer_of`."""
        return self.opened(value)[0]

    def opened(self, value: bytes) -> tuple[MessageSchema, int]:
        """The message's schema and where it begins. Raises as `Framing.writer_of` does."""
        # Nearly always the first message of its file, for which one byte stands.
        short = self._schemas.header_bytes + 1
        if (found := self._by_header.get(value[:short])) is not None:
            return found, short
        file = self._schemas.writer_of(value)
        path, at = _path(value, self._schemas.header_bytes)
        # By the numbers, which may be written in many ways.
        key = value[: self._schemas.header_bytes], path
        known = self._by_path.get(key)
        if known is None:
            known = self._by_path[key] = self._message(file, path)
        if isinstance(known, str):
            raise ValueError(known)
        if at == short:
            self._by_header[value[:short]] = known
        return known, at

    def _message(self, file: ProtoFile, path: tuple[int, ...]) -> MessageSchema | str:
        """The message at a path of the file, or what is wrong with it."""
        try:
            return self._checked(_message(file, path))
        except ValueError as error:
            return str(error)

    def sorted_out(self, values: Packed) -> tuple[list[tuple[MessageSchema, int, Int64s]], list[Int64s]]:
        """Schemas, where their messages begin, and the places of the values; and those of values to be `opened` alone.

        Raises Unreachable and ConfigError.
        """
        short = self._schemas.header_bytes + 1
        alike, left = _by_begin(values, short)
        found = list[tuple[MessageSchema, int, Int64s]]()
        for places in alike:
            of_group = places
            while len(of_group):
                try:
                    schema, at = self.opened(values[int(of_group[0])] or b"")
                except ValueError:
                    left.append(of_group)
                    break
                same = _alike(values.at(of_group), short, at)
                found.append((schema, at, of_group[same]))
                of_group = of_group[~same]
        return found, left


def proto_file(name: str, text: str, references: Sequence[tuple[str, str]] = ()) -> ProtoFile:
    """The schema written in `text`; `references` are names that it imports, and texts. Raises ValueError."""
    compiled = _compiled(text, tuple(references))
    if isinstance(compiled, str):
        raise ValueError(compiled)
    pool = DescriptorPool()
    for part in FileDescriptorSet.FromString(compiled).file:
        pool.Add(part)
    return ProtoFile(name, pool.FindFileByName(_ROOT))


@lru_cache(_COMPILED_KEPT)
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> bytes | str:
    """A FileDescriptorSet with all imports, or what is wrong with the texts, in protoc's words. Raises RetriableError
    where somebody else ends protoc.
    """
    with TemporaryDirectory(prefix="calve-protoc-") as folder, known_files() as known:
        root, out = Path(folder, "in"), Path(folder, "out")
        for name, body in (*references, (_ROOT, text)):
            try:
                _write(root, name, body)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                return f"not a Protobuf schema: {name[:_SHOWN_CHARACTERS]!r} is no name of a file: {why}"
        command = ["-c", _PROTOC, f"-I{root}", *known, "--include_imports"]
        done = subprocess.run(  # noqa: S603 - our own interpreter, and paths that are ours
            [sys.executable, *command, f"--descriptor_set_out={out}", str(root / _ROOT)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if -done.returncode in _BY_OTHERS:
            raise RetriableError(
                f"protoc was ended by signal {-done.returncode}", hint="see whether memory is short", code=Code.PROTOC
            )
        if done.returncode < 0:
            most = f"{COMPILE_CPU_S} s and {COMPILE_BYTES:,} bytes of memory"
            return f"protoc can't read it: signal {-done.returncode}, with {most} at most"
        if done.returncode:
            said = " ".join(
                line for line in done.stderr.replace(f"{root}/", "").splitlines() if not _LOGGED.match(line)
            )
            return f"not a Protobuf schema: {said[:_SHOWN_CHARACTERS]}"
        return out.read_bytes()


def _write(root: Path, name: str, text: str) -> None:
    """Write a file of a schema. Raises ValueError and OSError for what can't be a file's name below `root`."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("it is not below the schema's own")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def _by_begin(values: Packed, size: int) -> tuple[list[Int64s], list[Int64s]]:
    """The places of values that have their first bytes in common; and of those that have not so many."""
    if values.prefix(size) is not None:
        return [np.arange(len(values))], []
    is_long = values.sizes() >= size
    places = np.flatnonzero(is_long)
    starts, begins = values.starts[places], np.zeros(len(places), np.int64)
    for i in range(size):
        begins = begins << 8 | values.data[starts + i]
    order = np.argsort(begins, kind="stable")
    return np.split(places[order], np.flatnonzero(np.diff(begins[order])) + 1), [np.flatnonzero(~is_long)]


def _alike(values: Packed, begin: int, end: int) -> npt.NDArray[np.bool_]:
    """Which values have the bytes there that the first one has, what is before them being the same in all."""
    found, first = values.sizes() >= end, int(values.starts[0])
    for i in range(begin, end):
        found[found] &= values.data[values.starts[found] + i] == values.data[first + i]
    return found


def _path(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message of the file, and of the message around it, and where the data begins. Raises ValueError."""
    number, at = _whole(value, at)
    if not 0 <= number <= _DEEPEST:
        raise ValueError(f"not Confluent's wire format for Protobuf: a message {number} deep")
    path: list[int] = []
    for _ in range(number):
        index, at = _whole(value, at)
        path.append(index)
    return tuple(path) or (0,), at


def _whole(value: bytes, at: int) -> tuple[int, int]:
    """A number as Protobuf writes sint64, and where it ends. Raises ValueError."""
    found, shift = 0, 0
    while True:
        if at >= len(value) or shift > _LAST_SHIFT:
            raise ValueError("not Confluent's wire format for Protobuf: no message index behind the schema id")
        byte = value[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at


def _message(file: ProtoFile, path: tuple[int, ...]) -> MessageSchema:
    """The message at a path of indexes. Raises ValueError if there is none, or none that can be read."""
    parts = list(file.file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in path:
        if not 0 <= index < len(parts):
            shown = ", ".join(map(str, path))
            raise ValueError(f"{file.name} has no message [{shown}]")
        found = parts[index]
        parts = list(found.nested_types)
    assert found is not None  # a path has one index at least
    name = f"{file.name}, message {found.full_name}"
    try:
        return MessageSchema(name, found, GetMessageClass(found).FromString)
    except RecursionError:  # protobuf calls itself for each message that a message names
        raise ValueError(f"{name}, has too many messages within each other") from None

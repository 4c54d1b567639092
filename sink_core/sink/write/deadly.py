"""Records that end the process which decodes them, found before a task decodes them itself, and set aside.

What crashes in a library passes every `except`: no dead letter, and each later run dies of the same record. So where
one has died without a word, tasks of the next have all that they read decoded in a process of its own first. What ends
this one is cut into parts, down to single records, and one that ends it twice alone is a dead letter. A task decodes
the rest as ever: what becomes of other records does not change, nor does which offsets the batch has. Whoever dies in
between has written files that nobody names, as any run that dies, and the next begins anew.

No verdict is made of a lack of memory (SIGKILL), nor of an error that is raised: it will be where the task meets it.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from calve.sink_core.error_codes.records import DEADLY
from calve.sink_core.packed import Int64s
from calve.sink_core.records.columns.kafka_column import RAW_KEY, kafka_type
from calve.sink_core.records.decode.decoded import DECODE, BadValue
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.tables.budget import Budget

if TYPE_CHECKING:
    from calve.sink_core.sink.write.feeds import Origins

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}
_PARTS = 32
_MODULE = __name__
"""What the process runs."""

Step = Literal["sort", "decode_tombstones"]


@dataclass(frozen=True, slots=True)
class Origin:
    """An `Origins` that another process can have: `rows` are what it said of all records, with other keys."""

    rows: pa.Array

    def __call__(self, places: Int64s, keys: pa.Array) -> pa.Array:
        *parts, _, headers = self.rows.take(pa.array(places, pa.int64())).flatten()
        return pa.StructArray.from_arrays([*parts, keys, headers], fields=list(kafka_type(keys.type)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A `Keys` that another process can have."""

    keys: Sequence[bytes | None]

    def __call__(self) -> Sequence[bytes | None]:
        return self.keys


@dataclass(frozen=True, slots=True)
class Given:
    """What a step of `Feeds` is given of n records; no values for tombstones."""

    keys: Sequence[bytes | None]
    slices: Int64s
    values: Sequence[bytes] | None = None
    rows: pa.Array | None = None

    @classmethod
    def of(cls, values: Sequence[bytes], slices: Int64s, keys: Sequence[bytes | None], origins: Origins) -> Given:
        rows = origins(np.arange(len(values)), pa.nulls(len(values), RAW_KEY))
        return cls(list(keys), slices, list(values), rows)

    def at(self, places: Int64s) -> Given:
        return Given(
            [self.keys[place] for place in places],
            self.slices[places],
            None if self.values is None else [self.values[place] for place in places],
            None if self.rows is None else self.rows.take(pa.array(places)),
        )

    @property
    def step(self) -> tuple[Step, tuple[object, ...]]:
        if self.values is None or self.rows is None:
            return "decode_tombstones", (Listed(self.keys), self.slices)
        return "sort", (self.values, self.slices, Listed(self.keys), Origin(self.rows))


class Trial:
    """Decodes in a process of its own what a task is about to; `topics` as for `Feeds`."""

    def __init__(self, spec: IngestSpec, topics: Sequence[str]) -> None:
        self._begin = pickle.dumps((replace(spec, careful=False), tuple(topics)))
        self._process: subprocess.Popen[bytes] | None = None

    def deadly(self, given: Given) -> dict[int, BadValue]:
        """The records that end the process, by their places."""
        found = self._found(given, np.arange(len(given.slices)))
        said = {at: f"{DEADLY.code}: the process that decodes it ends by {by.name}" for at, by in found.items()}
        return {at: BadValue(at, DECODE, text) for at, text in said.items()}

    def _found(self, given: Given, places: Int64s) -> dict[int, signal.Signals]:
        part = given.at(places)
        ended = self._ended(part) if len(places) else None
        if ended is None or (len(places) == 1 and self._ended(part) is None):
            return {}
        if len(places) == 1:
            return {int(places[0]): ended}
        found: dict[int, signal.Signals] = {}
        for each in np.array_split(places, min(_PARTS, len(places))):
            found |= self._found(given, each)
        return found

    def _ended(self, given: Given) -> signal.Signals | None:
        """By which crash the process has ended over these records; None if it has not."""
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(pickle.dumps(given.step))
            process.stdin.flush()
            if process.stdout.read(1):
                return None
        self.close()
        return next((each for each in _CRASHES if process.returncode == -each), None)

    def _started(self) -> subprocess.Popen[bytes]:
        # Modules are where this process has them, which an executor may have been sent.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            # Ctrl-C is for who waits for it.
            start_new_session=True,
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(self._begin)
        return process

    def close(self) -> None:
        """Wait for the end of the process."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        self.close()


@contextmanager
def trial_of(spec: IngestSpec, topics: Sequence[str]) -> Generator[Trial | None]:
    """A trial if the batch asks for one."""
    trial = Trial(spec, topics) if spec.careful else None
    try:
        yield trial
    finally:
        if trial is not None:
            trial.kill()


def main() -> None:
    """Decode what comes, and answer each with a byte."""
    from calve.sink_core.sink.write.feeds import Feeds

    given, answers = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    spec, topics = pickle.load(given)  # noqa: S301 - written by our own task
    feeds = Feeds(spec, "", Budget(), topics)
    with suppress(EOFError):
        while True:
            step, of = pickle.load(given)  # noqa: S301 - written by our own task
            # The task meets the same, and raises it.
            with suppress(Exception):
                getattr(feeds, step)(*of)
            os.write(answers, b".")


if __name__ == "__main__":
    main()

"""The lines of one file, with partitions and offsets as Kafka Connect's FileStreamSource has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from calve.sink_core.source.base import Limits, Record, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.flat_map import FlatMap


class ConnectFile:
    """The file is the source partition, `{"filename": path}`, its offset `{"position": bytes}` behind a whole line."""

    def __init__(self, file: str, topic: str, at_a_time: int = 100) -> None:
        self._file, self._topic, self._at_a_time = Path(file), topic, at_a_time
        self._partition = FlatMap({"filename": file})

    @property
    def fingerprint(self) -> str:
        return f"lines of {self._file}"

    def topics(self) -> Sequence[Topic]:
        return [Topic(self._topic, 1)]

    def prepare(self, stored: Stored) -> None:
        pass

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:  # noqa: ARG002 - small files
        start = stored.get(self._partition)
        lines = self._lines(start, None)
        end = _position(start) + sum(map(len, lines))
        return [Work(self._partition, start, FlatMap({"position": end}), len(lines))] if lines else []

    def read(self, work: Work) -> Iterator[Rows]:
        position, lines = _position(work.start), self._lines(work.start, work.bound)
        for first in range(0, len(lines), self._at_a_time):
            some = lines[first : first + self._at_a_time]
            position += sum(map(len, some))
            records = [Record(self._topic, None, line.rstrip(b"\n"), partition=0) for line in some]
            yield Rows(FlatMap({"position": position}), records)

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - as it is
        return None

    def acknowledge(self, committed: Stored) -> None:
        pass

    def waiting(self, stored: Stored) -> Waiting:
        records = len(self._lines(stored.get(self._partition), None))
        return Waiting(records, f"{records} lines")

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        pass

    def _lines(self, start: FlatMap | None, bound: FlatMap | None) -> list[bytes]:
        """Whole lines, with their ends."""
        read = self._file.read_bytes()[_position(start) : _position(bound) if bound is not None else None]
        return [line for line in read.splitlines(keepends=True) if line.endswith(b"\n")]


def _position(offset: FlatMap | None) -> int:
    return int(str(offset["position"])) if offset is not None else 0

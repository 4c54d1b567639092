"""A source as somebody writes it who knows docs/sources.md only: the lines of files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calve import BadRow, Blocker, FlatMap, Limits, Record, Rows, Support, Topic, Waiting, Work

Stored = Mapping[FlatMap, FlatMap]
Update = Mapping[FlatMap, FlatMap | None]


class Lines:
    """Each file is a source partition, its offset the number of lines that were read."""

    def __init__(self, folder: str, topic: str, at_a_time: int = 10, partitions: int = 3) -> None:
        self._folder, self._topic, self._at_a_time, self._partitions = Path(folder), topic, at_a_time, partitions

    @property
    def fingerprint(self) -> str:
        return f"lines of {self._folder}"

    def topics(self) -> Sequence[Topic]:
        return [Topic(self._topic, self._partitions)]

    def prepare(self, stored: Stored) -> None:
        pass

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:  # noqa: ARG002 - small files
        found = list[Work]()
        for file in sorted(self._folder.glob("*.txt")):
            partition, lines = FlatMap({"file": file.name}), len(self._lines(file.name))
            start = stored.get(partition)
            if lines > (before := _line(start)):
                found.append(Work(partition, start, FlatMap({"line": lines}), lines - before))
        return found

    def read(self, work: Work) -> Iterator[Rows]:
        lines = self._lines(str(work.partition["file"]))
        for first in range(_line(work.start), _line(work.bound), self._at_a_time):
            some = lines[first : min(first + self._at_a_time, _line(work.bound))]
            good = [line for line in some if not line.startswith(("#", "!"))]
            bad = [BadRow(line.encode(), "begins with !", work.partition) for line in some if line.startswith("!")]
            yield Rows(
                FlatMap({"line": first + len(some)}),
                [Record(self._topic, line.split()[0].encode(), line.encode()) for line in good],
                bad,
                dropped=len(some) - len(good) - len(bad),
            )

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - as it is
        return None

    def acknowledge(self, committed: Stored) -> None:
        read = "".join(f"{partition['file']} {at['line']}\n" for partition, at in sorted(committed.items()))
        (self._folder / "acknowledged").write_text(read)

    def waiting(self, stored: Stored) -> Waiting:
        records = sum(work.size for work in self.plan(stored, Limits(1, 1)))
        return Waiting(records, f"{records} lines")

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        pass

    def _lines(self, name: str) -> list[str]:
        return (self._folder / name).read_text().splitlines()


def _line(offset: FlatMap | None) -> int:
    return int(str(offset["line"])) if offset is not None else 0


class TornLines(Lines):
    """The same, each file into a topic of its name. One in which a line is torn is told, and all others are read."""

    def topics(self) -> Sequence[Topic]:
        return [Topic(f"{self._topic}.{file.stem}", 1) for file in sorted(self._folder.glob("*.txt"))]

    def read(self, work: Work) -> Iterator[Rows | Blocker]:
        name = str(work.partition["file"])
        if any(line.endswith("\\") for line in self._lines(name)):
            yield Blocker(name, "a line of it is torn", "end the line")
            return
        lines = self._lines(name)[_line(work.start) : _line(work.bound)]
        yield Rows(work.bound, [Record(f"{self._topic}.{name[:-4]}", None, line.encode()) for line in lines])

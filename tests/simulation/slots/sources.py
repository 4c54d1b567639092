"""A world in which a source reads lines that people write, and what such a source promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.source.base import (
    Limits,
    Record,
    Rows,
    Stored,
    Support,
    Topic,
    Update,
    Waiting,
    Work,
)
from calve.sink_core.source.events import RowsSent, Written
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.offsets_topic import parsed_key
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import run_source
from tests.simulation.broker import At, Cluster, Outcome, Transaction
from tests.simulation.promises import Promise, Violation
from tests.simulation.slots import clients
from tests.simulation.slots.oracle import SlotOracle
from tests.simulation.slots.world import BOUNDS, CONNECTIONS, SlotTasks, SlotWorld

ROWS = "rows"
AT_ONCE = 2
"""Lines that are read together, and may be a transaction."""

MOST_FILES = 6
_OTHER = "other"
"""The transactional id of another connector, whose offsets are in the same topic."""


class System:
    """Lines by file. `forgotten` are those before which nothing can be read any more."""

    def __init__(self, files: int) -> None:
        self.lines = {f"f{number}": 0 for number in range(files)}
        self.forgotten: dict[str, int] = {}


class Lines:
    """The source: line n of a file is `file n`."""

    system: ClassVar[System]
    acknowledged: ClassVar[Callable[[str, int], None]]

    fingerprint = "lines"

    def topics(self) -> Sequence[Topic]:
        return [Topic(ROWS, 2)]

    def prepare(self, stored: Stored) -> None:
        """Nothing is needed."""

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        del limits
        return [
            Work(at, stored.get(at), FlatMap({"line": lines}), lines - line_of(stored.get(at)))
            for name, lines in sorted(self.system.lines.items())
            if lines > line_of(stored.get(at := FlatMap({"file": name})))
        ]

    def read(self, work: Work) -> Iterator[Rows]:
        name, end = str(work.partition["file"]), line_of(work.bound)
        for first in range(line_of(work.start), end, AT_ONCE):
            behind, kept = min(first + AT_ONCE, end), self.system.forgotten.get(name, 0)
            # Who is late finds less than there was.
            lines = range(max(first, kept), behind)
            records = [Record(ROWS, name.encode(), f"{name} {line}".encode()) for line in lines]
            yield Rows(FlatMap({"line": behind}), records)

    def update_offsets(self, pending: Stored) -> Update | None:
        del pending

    def acknowledge(self, committed: Stored) -> None:
        for partition, offset in committed.items():
            Lines.acknowledged(str(partition["file"]), line_of(offset))

    def waiting(self, stored: Stored) -> Waiting:
        waiting = sum(work.size for work in self.plan(stored, Limits(1, 1)))
        return Waiting(waiting, f"{waiting} lines")

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        """There is no connection."""


class SourceOracle(SlotOracle):
    """Knows how far each file was sent: `offsets`, by what was committed."""

    def __init__(self, pipeline: SourcePipeline, system: System, target: Cluster, note: Callable[[str], None]) -> None:
        super().__init__(pipeline, target, note)
        self._offsets_at: At = (pipeline.offsets_topic, 0)
        self._system = system
        self.offsets: dict[FlatMap, FlatMap] = {}

    def check_end(self) -> None:
        sent = {str(at["file"]): line_of(offset) for at, offset in self.offsets.items()}
        if sent != {name: lines for name, lines in self._system.lines.items() if lines}:
            raise Violation(Promise.PROGRESS, f"sent are {sent} of {self._system.lines}")

    def acknowledged(self, name: str, line: int) -> None:
        """The system was told to forget what lies before."""
        if line > line_of(self.offsets.get(FlatMap({"file": name}))):
            raise Violation(Promise.POSITIONS_FOLLOW, f"{name} is forgotten up to {line}, which nobody has committed")
        self._system.forgotten[name] = max(line, self._system.forgotten.get(name, 0))

    def moved(self, transaction: Transaction, events: Sequence[object | None], offsets: Mapping[At, int]) -> None:
        if transaction.transactional_id == _OTHER:
            return
        self.expect(not offsets, f"a source has no positions, and commits {offsets}")
        sent = [event for event in events if isinstance(event, RowsSent)]
        found = self._rows(transaction)
        wanted = dict[str, list[int]]()
        told = dict[FlatMap, FlatMap]()
        for each in (each for event in sent for each in event.moved):
            at, after = FlatMap.parsed(each.partition), FlatMap.parsed(each.after)
            wanted[str(at["file"])] = list(range(line_of(self.offsets.get(at)), line_of(after)))
            told[at] = after
        if found != {name: lines for name, lines in wanted.items() if lines}:
            raise Violation(Promise.COPIED_ONCE, f"sent were {found}, to be sent were {wanted}")
        for each in (each for event in sent for each in event.moved):
            known = self.offsets.get(FlatMap.parsed(each.partition))
            before = known.json if known is not None else ""
            self.expect(each.before == before, f"{each.partition} goes on at {each.before}, and was at {before}")
        self.expect(self._stored(transaction) == told, f"stored are {self._stored(transaction)}, told {told}")
        written = [each for event in sent for each in event.written]
        self.expect(self._written(transaction) == written, f"told are {written}, not {self._written(transaction)}")
        self.offsets |= told

    def _records(self, transaction: Transaction, topic: str) -> Iterator[tuple[At, int, clients.Record]]:
        for at in sorted(transaction.logs):
            if at[0] == topic:
                for offset, stored in enumerate(self._target.log(at).records):
                    if stored.transaction is transaction and isinstance(stored.value, clients.Record):
                        yield at, offset, stored.value

    def _rows(self, transaction: Transaction) -> dict[str, list[int]]:
        """The numbers of lines by file, in the order of the partition that all of a file's go to."""
        found = dict[str, list[int]]()
        for _, _, record in self._records(transaction, ROWS):
            name, number = (record.value or b"").decode().split()
            found.setdefault(name, []).append(int(number))
        return found

    def _stored(self, transaction: Transaction) -> dict[FlatMap, FlatMap]:
        """Source offsets in the offsets topic."""
        stored = dict[FlatMap, FlatMap]()
        for _, _, record in self._records(transaction, self._offsets_at[0]):
            _, partition = parsed_key(record.key) or ("", None)
            assert partition is not None
            stored[partition] = FlatMap.parsed(record.value or b"")
        return stored

    def _written(self, transaction: Transaction) -> list[Written]:
        by_partition = dict[At, list[int]]()
        for at, offset, _ in self._records(transaction, ROWS):
            by_partition.setdefault(at, []).append(offset)
        # Bytes are not the model's.
        return [
            Written(topic=at[0], partition=at[1], first=offsets[0], end=offsets[-1] + 1, records=len(offsets), bytes=0)
            for at, offsets in by_partition.items()
        ]


class SourceWorld(SlotWorld):
    """A source's: it reads `system`."""

    def __init__(self, seed: int, pipeline: SourcePipeline, rules: Rules = ALL) -> None:
        super().__init__(seed, rules)
        self.pipeline = pipeline
        self.system = Lines.system = System(3)
        self.oracle: SourceOracle = SourceOracle(pipeline, self.system, self.target, self.note)
        Lines.acknowledged = self.oracle.acknowledged

    def plane(self) -> SourcePlane:
        return SourcePlane(self.pipeline, self.rules, tasks=SlotTasks(world=self))

    def move(self) -> None:
        with self.plane() as plane:
            run_source(plane, bounds=BOUNDS)

    def deed(self, what: str, chance: random.Random) -> None:
        match what:
            case "produce":
                for name in chance.sample(sorted(self.system.lines), 2):
                    self.system.lines[name] += chance.choice((1, 2, 5, 9))
                if chance.random() < 0.1:
                    self.leave_open()
            case "add partition" if len(self.system.lines) < MOST_FILES:
                self.system.lines[f"f{len(self.system.lines)}"] = 0
            case "settle upstream":
                for transaction in list(self.target.transactions.values()):
                    if transaction.transactional_id == _OTHER and transaction.outcome is Outcome.OPEN:
                        chance.choice((self.target.commit, self.target.abort))(_OTHER, transaction.epoch)
            case _:
                pass

    def leave_open(self) -> None:
        """Another connector begins to store an offset in the same topic."""
        at = (self.pipeline.offsets_topic, 0)
        if at[0] in self.target.topics:
            epoch = self.target.init_transactions(_OTHER)
            key, value = b'["other",{"file":"f0"}]', b'{"line":1}'
            self.target.produce(_OTHER, epoch, at, clients.Record(key, value, self.now_ms(), ()))

    @property
    def position(self) -> object:
        return dict(self.oracle.offsets)


def line_of(offset: FlatMap | None) -> int:
    return int(str(offset["line"])) if offset is not None else 0


def load_source(directory: Path) -> SourcePipeline:
    """The source of all histories, whose file is written below `directory`."""
    (directory / "connections.yaml").write_text(CONNECTIONS)
    path = directory / "source.yaml"
    path.write_text(
        "name: s\nkind: source\nsource: {type: 'tests.simulation.slots.sources:Lines'}\ntarget: {kafka: us}\n"
        "transaction: {boundary: poll}\nbatch: {min_task_bytes: 1B}\n"
    )
    return load_as(SourcePipeline, path)

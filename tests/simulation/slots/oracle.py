"""What kinds with slots promise, and a mirror: looked at when the target has decided a transaction, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from calve.sink_core.config.effective import Pipeline
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.slots.events import GenerationStarted
from calve.sink_core.errors import CalveError, FindingError, RetriableError, UnknownOutcome
from calve.sink_core.mirror.events import CopiedRange, RecordsCopied
from calve.sink_core.mirror.run import MirrorReport
from calve.sink_core.mirror.segments import translate
from calve.sink_core.offsets import dense_to_offsets
from tests.simulation.broker import At, Cluster, Log, Outcome, Transaction
from tests.simulation.promises import Crash, Promise, Violation
from tests.simulation.slots.clients import Record


class SlotOracle:
    """Knows the cluster that is written to. `generation` is the last one recorded."""

    def __init__(self, pipeline: Pipeline, target: Cluster, note: Callable[[str], None]) -> None:
        self._group, self._target, self._note = pipeline.group, target, note
        self._token: At = (pipeline.control_topic, 0)
        self.generation = ""
        target.decided = self._decided

    def judge(self, process: str, error: Exception) -> None:
        """What a process or a task ended with."""
        if not isinstance(error, CalveError):
            raise Crash(f"{process} crashed with {type(error).__name__}: {error}") from error
        if isinstance(error, FindingError):
            raise Violation(Promise.TRUE_FINDINGS, f"{process} found {error.finding}: {error.message}") from error
        if not isinstance(error, RetriableError | UnknownOutcome):
            raise Violation(Promise.KNOWN_ENDS, f"{process} ended with {type(error).__name__}: {error}") from error

    def check_end(self) -> None:
        """Everything was moved."""
        raise NotImplementedError

    def began(self, event: GenerationStarted) -> None:
        """A generation was recorded."""
        self.generation = event.batch_id

    def moved(self, transaction: Transaction, events: Sequence[object | None], offsets: Mapping[At, int]) -> None:
        """A transaction was committed, with the events and the group's offsets in it but for the token."""
        raise NotImplementedError

    def _decided(self, transaction: Transaction) -> None:
        if transaction.outcome is not Outcome.COMMITTED:
            return
        log = self._target.log(self._token) if self._token[0] in self._target.topics else Log()
        events = [stored.value for stored in log.records if stored.transaction is transaction]
        offsets = transaction.offsets.get(self._group, {})
        self._note(f"{transaction.transactional_id} commits {_shown(events)} {sorted(offsets.items())}")
        for event in events:
            if isinstance(event, GenerationStarted):
                self.began(event)
        if (token := offsets.get(self._token)) is not None:
            self.expect(token[1] == self.generation, f"the token names {token[1]}, not {self.generation}")
        moved = {at: offset for at, (offset, _) in offsets.items() if at != self._token}
        self.moved(transaction, events, moved)

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(Promise.POSITIONS_FOLLOW, otherwise)


class Oracle(SlotOracle):
    """Of a mirror: knows both clusters as they are. `positions` are the next source offsets by remote partition, as the
    decided transactions left them, `begins` the first ones.
    """

    def __init__(self, pipeline: MirrorPipeline, source: Cluster, target: Cluster, note: Callable[[str], None]) -> None:
        super().__init__(pipeline, target, note)
        self._pipeline = pipeline
        self._source = source
        self.positions: dict[At, int] = {}
        self.begins: dict[At, int] = {}
        self._ranges: set[CopiedRange] = set()

    def source_of(self, remote: At) -> At:
        topic = self._pipeline.source_of(remote[0])
        assert topic is not None
        return topic, remote[1]

    def check_report(self, report: MirrorReport) -> None:
        """A run says of nothing that it was copied but of what was."""
        told = [part for batch in report.batches for part in batch.ranges]
        if untrue := [part for part in told if part not in self._ranges]:
            raise Violation(Promise.TRUE_VERDICTS, f"reported and not there: {untrue[0]}")

    def check_end(self) -> None:
        """Everything is copied."""
        for topic, found in self._source.topics.items():
            for number, log in enumerate(found.logs):
                remote = self._pipeline.remote_of(topic), number
                if self.positions.get(remote) != log.last_stable:
                    raise Violation(Promise.PROGRESS, f"{remote} is at {self.positions.get(remote)} of {log.end}")
                self._check_copy(remote)

    def began(self, event: GenerationStarted) -> None:
        super().began(event)
        for at, start in dense_to_offsets(event.positions).items():
            self.expect(at not in self.positions, f"{at} begins again at {start}")
            self.positions[at] = self.begins[at] = start

    def moved(self, transaction: Transaction, events: Sequence[object | None], offsets: Mapping[At, int]) -> None:
        parts = [part for event in events if isinstance(event, RecordsCopied) for part in event.ranges]
        for part in parts:
            self._go_on(part, transaction)
        for at, offset in offsets.items():
            known = self.positions.get(at)
            self.expect(offset == known, f"the position of {at} goes to {offset}, by the events it is {known}")
        moved = {part.at for part in parts}
        self.expect(moved <= offsets.keys(), f"an event moves {moved}, the positions are of {sorted(offsets)}")
        for at in {*moved, *transaction.logs} - {self._token}:
            self._check_copy(at)

    def _go_on(self, part: CopiedRange, transaction: Transaction) -> None:
        known = self.positions.get(part.at)
        if known != part.start:
            raise Violation(Promise.COPIED_ONCE, f"{part.at}: [{part.start}, {part.end}) is copied, {known} was next")
        self.positions[part.at] = part.end
        self._ranges.add(part)
        self._check_event(part, transaction)

    def _check_event(self, part: CopiedRange, transaction: Transaction) -> None:
        """What the event says of where records are."""
        remote, source = self._target.log(part.at), self._source.log(self.source_of(part.at))
        landed = [o for o, stored in enumerate(remote.records) if stored.transaction is transaction and stored.value]
        self.expect(
            landed == list(range(part.first, part.first + part.records)) if landed else part.records == 0,
            f"{part.at}: the event says {part.records} from {part.first} on, they are at {landed}",
        )
        there = [offset for offset in range(part.start, part.end) if source.committed(offset)]
        found = [translate([part], offset) for offset in there]
        self.expect(found == landed, f"{part.at}: offsets {there} are translated to {found}, they are at {landed}")

    def _check_copy(self, at: At) -> None:
        """The remote partition holds what was committed at the source up to the position, once and in order."""
        remote, source = self._target.log(at), self._source.log(self.source_of(at))
        wanted = _records(source, self.begins.get(at, 0), self.positions.get(at, 0))
        found = _records(remote, 0, remote.end)
        if found != wanted:
            first = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), len(wanted))
            what = f"{at} at {self.positions.get(at)}: {len(found)} records for {len(wanted)}, other from the {first}."
            raise Violation(Promise.COPIED_ONCE, what)


def _records(log: Log, start: int, end: int) -> list[Record]:
    found = [log.records[offset].value for offset in range(start, end) if log.committed(offset)]
    return [record for record in found if isinstance(record, Record)]


def _shown(events: Sequence[object | None]) -> str:
    return ", ".join(
        f"{type(event).__name__} {getattr(event, 'positions', '')} of {getattr(event, 'batch_id', '')[:8]}"
        for event in events
    )

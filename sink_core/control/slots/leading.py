"""The driver's side of slots: a generation that is recorded, alone, and knows where everything stands.

    record → fence every slot id that any generation had → read positions and log

Crash points, and what the next run finds (docs/design.md has the whole table):

    generation.after-record  a generation without commits; tasks of the former one may still commit; the next run leads
    generation.after-fence   as above, and open transactions of the former slots are decided
    publish.*                those of the publisher, by which it is recorded

Recording comes first: a task that takes an id after the fence reads the new token and stops, one that took it before is
fenced. In the other order a task could pass its check between the two.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import Event
from calve.sink_core.control.group import SourceGroup
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.publisher import TRANSACTION_S, Publisher
from calve.sink_core.control.slots.events import GenerationStarted
from calve.sink_core.control.slots.state import SlotState
from calve.sink_core.errors import ProtocolError, Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import reported
from calve.sink_core.offsets import Offsets, Position, Positions, TopicPartition, offsets_to_dense
from calve.sink_core.rules import ALL, Rules

FENCED_AT_ONCE = 16
"""Slot ids that are fenced at the same time; each takes the broker some tens of milliseconds."""

_HIDDEN_TRIES = 3

S = TypeVar("S", bound=SlotState[Any])
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a generation is to be recorded with. `starts` are of partitions that the log does not know; its own id a
    generation gets when it is recorded.
    """

    pipeline_id: str
    slots: int
    topic_ids: Mapping[str, str]
    upstream_ids: Mapping[str, str]
    starts: Offsets


@dataclass(frozen=True, slots=True)
class Led(Generic[S]):
    """A generation that leads, of at most `slots` slots. `positions`, with their metadata, and `state` were read after
    its fence: no task of an earlier generation can change either any more.
    """

    generation: str
    slots: int
    positions: Positions
    state: S


class Leader(Generic[S]):
    """Leads generations of one pipeline. `slot_id` gives the transactional id of a slot."""

    def __init__(
        self,
        settings: clients.Settings,
        *,
        publisher: Publisher[S],
        group: SourceGroup,
        log: ControlLog[S],
        slot_id: Callable[[int], str],
        rules: Rules = ALL,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._group = group
        self._log = log
        self._slot_id = slot_id
        self._rules = rules

    def lead(self, wanted: Callable[[S], Wanted]) -> Led[S] | None:
        """A new generation, or None if another driver has led one meanwhile: it has the work.

        `wanted` is asked with the log as it was read last. Raises ProtocolError for positions in the group that the log
        does not know of, Fenced or UnknownOutcome as the publisher does.
        """
        return self._past_the_dead(lambda: self._lead(wanted))

    def read_to_end(self) -> S:
        """The log to its end, also where a task that is gone has left a transaction open. No slot may be at work."""
        return self._past_the_dead(self._log.refresh_to_end)

    def _past_the_dead(self, read: Callable[[], R]) -> R:
        for _ in range(_HIDDEN_TRIES):
            try:
                return read()
            except Unreachable as error:
                if error.code != Code.OPEN_TRANSACTION:
                    raise
                # Who died with its event written holds the log's end back until its transaction times out: a driver, or
                # a slot. That is of a generation that was recorded below, so that the log tells of its id.
                self._publisher.fence()
                self.fence(self._log.state.most_slots)
        return read()

    def _lead(self, wanted: Callable[[S], Wanted]) -> Led[S] | None:
        state = self._log.refresh_to_end()
        what = wanted(state)
        generation, rules = str(uuid.uuid4()), self._rules
        if not rules.generation_is_recorded_first:
            self.fence(max(state.most_slots, what.slots))
        if not self._record(generation, what, state.last_batch_id):
            return None
        reach("generation.after-record")
        early = None if rules.positions_are_read_after_the_fence else self._positions()
        if rules.slots_are_fenced and rules.generation_is_recorded_first:
            self.fence(self._log.state.most_slots)
        reach("generation.after-fence")
        positions = early or self._positions()
        token, state = positions.pop(self._publisher.token, None), self._log.refresh_to_end()
        return Led(generation, what.slots, positions, state) if _leads(token, state, generation) else None

    def move(self, led: Led[S], events: Sequence[Event], positions: Positions) -> bool:
        """One transaction of the driver's own: `events` and `positions`, while the generation still leads.

        False if another leads by now. No slot of the generation may be at work.
        """

        def decide(found: Positions, state: S) -> Decision:
            if any(event.event_id in state.by_driver for event in events):
                return Decision(Verdict.ALREADY_PUBLISHED, "a try whose answer was lost has landed")
            if not _leads(found.get(self._publisher.token), state, led.generation):
                return Decision(Verdict.STALE, "another generation leads")
            return Decision(Verdict.PUBLISH, "")

        token = {self._publisher.token: Position(0, led.generation)}
        decision = self._publisher.publish(decide, events, {**positions, **token})
        self._log.refresh_to_end()
        return decision.verdict is not Verdict.STALE

    def _record(self, generation: str, wanted: Wanted, seen: str | None) -> bool:
        """Whether the generation is in the log, the last there is; False if another came after `seen`."""
        started = GenerationStarted(
            pipeline_id=wanted.pipeline_id,
            batch_id=generation,
            predecessor=seen or "",
            slots=wanted.slots,
            positions=offsets_to_dense(wanted.starts),
            topic_ids=wanted.topic_ids,
            upstream_ids=wanted.upstream_ids,
        )
        starts = {at: Position(offset, generation) for at, offset in wanted.starts.items()}

        def decide(found: Positions, state: S) -> Decision:
            if state.last_batch_id == generation:
                return Decision(Verdict.ALREADY_PUBLISHED, "a try whose answer was lost has landed")
            if state.last_batch_id != seen or starts.keys() & state.partitions.keys():
                return Decision(Verdict.STALE, "another generation leads")
            if foreign := sorted(starts.keys() & found.keys()):
                raise ProtocolError(
                    f"group {self._group.name} has a position for {foreign[0]} that this pipeline did not put there",
                    hint="the group belongs to Calve alone: delete its offsets if nothing else needs them, run again",
                    code=Code.FOREIGN_POSITIONS,
                )
            return Decision(Verdict.PUBLISH, "")

        decision = self._publisher.publish(
            decide, [started], {**starts, self._publisher.token: Position(0, generation)}
        )
        return decision.verdict is not Verdict.STALE and self._log.refresh_to_end().last_batch_id == generation

    def _positions(self) -> dict[TopicPartition, Position]:
        """Of every partition that the log knows, and the token."""
        return self._group.positions([*self._log.state.partitions, self._publisher.token])

    def fence(self, number: int) -> None:
        """Decide whatever a holder of a slot id has left open, and let none of them go on."""

        def fence(slot: int) -> None:
            producer = clients.transactional_producer(self._settings, self._slot_id(slot))
            with reported(f"fencing slot {slot}"):
                clients.await_broker(producer, self._log.topic, TRANSACTION_S)
                producer.init_transactions(TRANSACTION_S)

        with ThreadPoolExecutor(max_workers=min(FENCED_AT_ONCE, max(1, number))) as pool:
            list(pool.map(fence, range(number)))


def _leads(token: Position | None, state: SlotState[Any], generation: str) -> bool:
    return token is not None and token.metadata == generation and state.last_batch_id == generation

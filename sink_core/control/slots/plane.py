"""The control plane of kinds that move records by slots: who leads, and what the driver does where nothing is moved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from calve.sink_core.config.effective import SlotPipeline
from calve.sink_core.control.checkpoint import Kept, Needed
from calve.sink_core.control.fold import Fold
from calve.sink_core.control.maintenance_report import OnProgress
from calve.sink_core.control.plane import ControlPlane
from calve.sink_core.control.slots.events import GenerationEnded, PositionsKept, SlotCheckpoint
from calve.sink_core.control.slots.leading import Leader, Led, Wanted
from calve.sink_core.control.slots.slot import SlotSpec
from calve.sink_core.control.slots.state import SlotState
from calve.sink_core.errors import CalveError
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tasks import InProcessTasks, Job, Tasks, WrittenBy

HIDDEN_S = 3.0
"""So long a living slot may take to commit an event that it has written; a dead one is fenced then."""

P = TypeVar("P", bound=SlotPipeline)
S = TypeVar("S", bound=SlotState[Any])


class SlotPlane(ControlPlane[P, S]):
    """`admin` asks the cluster that is written to. `tasks` runs the slots."""

    def __init__(
        self, pipeline: P, fold: Fold[S], rules: Rules = ALL, *, tasks: Tasks | None = None, made_by: str = ""
    ) -> None:
        """Connect to that cluster. Raises as every control plane does."""
        super().__init__(pipeline, fold, rules, made_by=made_by)
        # Whoever leads can end the transaction that hides the log's end.
        self.log.patience_s = HIDDEN_S
        self.tasks: Tasks = tasks or InProcessTasks()
        self.leader = Leader(
            pipeline.kafka.properties,
            publisher=self.publisher,
            group=self.group,
            log=self.log,
            slot_id=pipeline.slot_id,
            rules=rules,
        )

    @property
    @abstractmethod
    def producer_settings(self) -> Mapping[str, object]:
        """Of a slot's producer, beside Calve's own."""

    @abstractmethod
    def checkpoint_of(self, *, delete_below: int) -> SlotCheckpoint:
        """What stands for the log as it was read, once it is deleted up to there."""

    def has_run(self) -> bool:
        """Whether any generation was led, by the log as it is now."""
        return self.read_only() and self.log.state.last_batch_id is not None

    def slot_spec(self, slot: int, generation: str) -> SlotSpec:
        """What a slot of a generation needs to write."""
        return SlotSpec(
            settings=self.pipeline.kafka.properties,
            transactional_id=self.pipeline.slot_id(slot),
            group=self.pipeline.group,
            token=self.publisher.token,
            control_topic=self.pipeline.control_topic,
            generation=generation,
            producer=dict(self.producer_settings),
            rules=self.rules,
        )

    def needed(self, tell: OnProgress) -> Needed:  # noqa: ARG002 - the log alone tells
        kept = [
            Kept(logged.offset, f"generation {logged.event.batch_id} is at work")
            for logged in self.log.state.outstanding()
        ]
        return Needed(kept, lambda below: [self.checkpoint_of(delete_below=below)])

    def keep_alive(self) -> int:
        """Commit every position again, in a generation of its own: a slot may move them until it is fenced."""
        led = self.lead_for("keep-alive")
        return self.keep_positions(led) if led is not None else 0

    def keep_positions(self, led: Led[S]) -> int:
        """Commit every position and the token again, before any slot of the generation is at work; how many."""
        kept = PositionsKept(pipeline_id=self.pipeline_id, batch_id=led.generation)
        return len(led.positions) + 1 if self.leader.move(led, [kept], led.positions) else 0

    def give_up(self) -> tuple[str, ...]:
        """A generation that has nothing to do fences those before it."""
        outstanding = tuple(logged.event.batch_id for logged in self.log.refresh().outstanding())
        return outstanding if outstanding and self.lead_for("given up") else ()

    def lead_for(self, why: str) -> Led[S] | None:
        """A generation that moves nothing, and has ended."""
        led = self.lead_empty()
        if led is not None:
            self.end(led.generation, why)
        return led

    def lead_empty(self) -> Led[S] | None:
        """A generation that moves nothing: no slot is at work from then on. None if another run is faster."""
        return self.leader.lead(lambda _state: Wanted(self.pipeline_id, 0, {}, {}, {}))

    def end(self, generation: str, why: str, written_by: WrittenBy | None = None) -> None:
        """Say, for people, that a generation has no task left."""
        by = written_by.to_map() if written_by is not None else {}
        self.log.append(GenerationEnded(pipeline_id=self.pipeline_id, batch_id=generation, why=why, written_by=by))

    def job(self, generation: str, description: str) -> Job:
        """The name of what the slots of a generation do."""
        return Job(self.pipeline.group, generation, f"{self.pipeline.group}: batch {generation}, {description}")

    def concluded(self, generation: str, why: str, written_by: WrittenBy | None = None) -> tuple[S, bool]:
        """The log to its end after the slots of a generation, which is then said to have ended; True if another one has
        overtaken it.
        """
        state = self.leader.read_to_end()
        overtaken = state.last_batch_id != generation
        if not overtaken:
            # For people: that it can't be said must not hide what came before.
            with suppress(CalveError):
                self.end(generation, why, written_by)
        return state, overtaken

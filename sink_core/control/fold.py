"""What a kind of pipeline brings to its control topic: types of event, their form on the wire, and what they add up to.

A message's value is an Avro object container file with one record: it carries the schema it was written with, and in
its metadata the lowest reader version that understands it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.control import schemas
from calve.sink_core.control.container import Containers
from calve.sink_core.control.events import (
    CALVE_VERSION,
    BatchAbandoned,
    Event,
    Paused,
    PipelineBound,
    Resolved,
    Resumed,
)
from calve.sink_core.control.schemas import Fields
from calve.sink_core.control.state import AnyState, LogState
from calve.sink_core.control.values import maker_of
from calve.sink_core.errors import ForeignEvent, OtherKind, ProtocolError

E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=AnyState)
S_contra = TypeVar("S_contra", bound=AnyState, contravariant=True)


@dataclass(frozen=True, slots=True)
class EventType(Generic[S_contra, E]):
    """A type of event: its class, the Avro fields that it has beside those of every event, and its place in the fold,
    which gets the event's control offset.
    """

    cls: type[E]
    fields: Fields
    take_in: Callable[[S_contra, int, E], object]


CORE: tuple[EventType[AnyState, Any], ...] = (
    EventType(PipelineBound, schemas.PIPELINE_BOUND, LogState.bind),
    EventType(Paused, schemas.PAUSED, LogState.pause),
    EventType(Resumed, schemas.RESUMED, LogState.resume),
    EventType(Resolved, schemas.RESOLVED, LogState.resolve),
    EventType(BatchAbandoned, schemas.BATCH_ABANDONED, LogState.abandon),
)
"""Of every kind. Each has a `CHECKPOINT` beside them: the one in `control.events`, or its own that says more."""


class Fold(Generic[S]):
    """The types of event of one kind, and the class of the state that they are folded into.

    `kind` is what its pipeline files say, `reader_version` the highest `min_reader` that its code understands.
    """

    def __init__(
        self, state: type[S], types: Iterable[EventType[S, Any]], *, kind: str, reader_version: int = 1
    ) -> None:
        self.state_type = state
        self.kind = kind
        self.types = {each.cls.event_type: each for each in types}
        self.reader_version = reader_version
        self.schemas = {name: schemas.of_event(name, each.fields) for name, each in self.types.items()}
        self._make = {name: maker_of(each.cls) for name, each in self.types.items()}
        self._containers = Containers(self.schemas, kind)

    def apply(self, state: S, offset: int, event: Event) -> None:
        """Fold the event at `offset`.

        Raises ProtocolError if it was folded before: files named twice would be committed twice.
        """
        state.advance(offset, event)
        self.types[event.event_type].take_in(state, offset, event)

    def apply_all(self, state: S, events: Iterable[tuple[int, Event]]) -> S:
        for offset, event in events:
            self.apply(state, offset, event)
        return state

    def encode(self, event: Event) -> bytes:
        """The message value of an event."""
        return self._containers.packed(event.event_type, asdict(event), min_reader=event.min_reader)

    def decode(self, value: bytes) -> Event:
        """The event in a message value.

        Raises ForeignEvent for what no Calve has written, OtherKind for what a pipeline of another kind has,
        ProtocolError for an event that this version does not know or may not read: the reader must stop.
        """
        try:
            container = self._containers.opened(value)
        except Exception as error:  # bytes of others fail in as many ways as Avro, zlib and JSON can
            raise _foreign(error) from error
        if container.kind not in ("", self.kind):
            raise OtherKind(container.kind)
        self._check_readable(container.name, container.min_reader)
        try:
            return self._make[container.name](container.record())
        except Exception as error:
            raise _foreign(error) from error

    def _check_readable(self, name: str, min_reader: int) -> None:
        hint = "upgrade this host: a newer Calve has written to the pipeline; nothing was committed"
        if name not in self.types:
            raise ProtocolError(
                f"event {name} is not among the {len(self.types)} types that this Calve {CALVE_VERSION} knows",
                hint=hint,
                code=Code.NEWER_VERSION,
            )
        if min_reader > self.reader_version:
            raise ProtocolError(
                f"event {name} needs reader version {min_reader}, "
                f"this Calve {CALVE_VERSION} reads up to {self.reader_version}",
                hint=hint,
                code=Code.NEWER_VERSION,
            )


def _foreign(error: Exception) -> ForeignEvent:
    return ForeignEvent(
        f"the control topic holds a message that is not an event of Calve ({type(error).__name__}: {error})",
        hint="nothing else may write to the control topic; see calve explain foreign-events",
    )

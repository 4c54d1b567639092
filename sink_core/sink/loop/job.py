"""The frame of whatever publishes: a batch, a range job, a replay of dead letters.

    announce → write → publish (fence, decide, one transaction) → commit

Whoever ends without a publish says so, and nobody waits for it. A process that is killed can't; its batch is listed
until the next publish, a range job until another one is published or orphan removal gives it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import BatchAbandoned, Event
from calve.sink_core.control.letters import NONE, Letters
from calve.sink_core.control.rounds import OnProgress, Progress
from calve.sink_core.errors import CalveError, Fenced, FindingError, ProtocolError, UnknownOutcome
from calve.sink_core.offsets import Positions
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.sink.loop.planning import check_topics
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.log.state import CommitState

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Publication:
    """What one transaction makes visible, once `decide` allows it; `topic_ids` are what the topics must still have.

    `decide` gets the positions that were read after the fence and the log as of then. `what` names it in progress.
    """

    what: str
    events: Sequence[Event]
    positions: Positions
    topic_ids: Mapping[str, str]
    decide: Callable[[Positions, CommitState], Decision]
    letters: Letters = NONE


def carry_out(
    session: Session,
    batch_id: str,
    write: Callable[[], tuple[W, Publication | None]],
    on_progress: OnProgress,
    *,
    seconds: dict[str, float] | None = None,
) -> tuple[W, Decision | None]:
    """What `write` made, and the decision on its publication; None if it has nothing to publish.

    `seconds` takes the wall time of the publish.
    """
    with _given_way_on_error(session, batch_id):
        written, made = write()
        if made is not None:
            on_progress(Progress("publish", made.what, batch_id))
            with timed({} if seconds is None else seconds, "publish"):
                return written, _publish(session, made)
    give_way(session, batch_id)
    return written, None


def _publish(session: Session, made: Publication) -> Decision:
    def after_fence(found: Positions, state: CommitState) -> Decision:
        session.check_bound()
        decision = made.decide(found, state)
        if decision.verdict is not Verdict.ALREADY_PUBLISHED:
            check_topics(session, made.topic_ids)
        return decision

    return session.publisher.publish(after_fence, made.events, made.positions, made.letters)


def commit_published(
    session: Session,
    tables: Collection[str],
    on_progress: OnProgress,
    *,
    after_publish: bool = True,
    behind: Mapping[str, CalveError] = MappingProxyType({}),
) -> CommitReport:
    """What became of `tables` and those with news by a commit of all that is published. `after_publish` and `behind` as
    in `Coordinator.commit`.
    """
    on_progress(Progress("commit", f"committing what is published to {', '.join(tables) or 'the tables'}"))
    return session.coordinator().commit(tables=tables, after_publish=after_publish, behind=behind)


def give_way(session: Session, batch_id: str) -> None:
    """Say that this process will not publish a batch or range job of its own.

    A control topic that was created again since is told nothing: to it this would be a foreign event.
    """
    if session.log.is_same_topic():
        session.log.append(BatchAbandoned(pipeline_id=session.pipeline_id, batch_id=batch_id))


@contextmanager
def _given_way_on_error(session: Session, batch_id: str) -> Generator[None]:
    """What is done for a batch, up to its publish; Ctrl-C is an error too."""
    try:
        yield
    except (UnknownOutcome, Fenced, FindingError, ProtocolError):
        # It may have been published; or what the log is now is what has to be explained first.
        raise
    except (Exception, KeyboardInterrupt):
        with suppress(CalveError):
            give_way(session, batch_id)
        raise


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Generator[None]:
    """Put the wall time of a step into `seconds`."""
    started = time.monotonic()
    yield
    seconds[step] = round(time.monotonic() - started, 3)

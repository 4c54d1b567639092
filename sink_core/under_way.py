"""A batch or range job between START_COMMIT and publish: whoever ends otherwise says so, and nobody waits for it.

A process that is killed can't; its batch is listed until the next publish, a range job until another one is published
or orphan removal gives it up.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress

from calve.sink_core.control.events import BatchAbandoned, StartCommit
from calve.sink_core.errors import CalveError, Fenced, FindingError, ProtocolError, UnknownOutcome
from calve.sink_core.failpoints import reach
from calve.sink_core.offsets import Position
from calve.sink_core.session import Session


def announce(session: Session, batch_id: str, token: Position) -> None:
    """Say that a range job planned on `token` begins, before its first file exists."""
    session.log.append(
        StartCommit(
            pipeline_id=session.pipeline_id,
            batch_id=batch_id,
            predecessor=token.metadata,
            file_prefix=f"calve-{batch_id}",
            config_fingerprint=session.pipeline.config_fingerprint,
        )
    )
    reach("range.after-start-commit")


def give_way(session: Session, batch_id: str) -> None:
    """Say that this process will not publish a batch or range job of its own.

    A control topic that was created again since is told nothing: to it this would be a foreign event.
    """
    if session.log.is_same_topic():
        session.log.append(BatchAbandoned(pipeline_id=session.pipeline_id, batch_id=batch_id))


@contextmanager
def given_way_on_error(session: Session, batch_id: str) -> Generator[None]:
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

"""Giving up batches that are under way, so that what was written for them can't be published any more."""

from __future__ import annotations

from calve.sink_core.control.publisher import GivenUp
from calve.sink_core.sink.session import Session


def give_up(session: Session) -> GivenUp:
    """Fence, read, and make every plan that was made before stale; the records are planned again by whoever had it.

    What is returned was read after the fence: a batch that is not in `state` by then is never published. The session
    must be bound. Raises Fenced if others fence this again and again, UnknownOutcome if the broker stops answering.
    """
    return session.publisher.give_up()

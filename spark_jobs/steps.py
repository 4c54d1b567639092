"""What runs and range jobs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sink_core.kafka import source
from sink_core.kafka.clients import ADMIN_TIMEOUT_S
from sink_core.session import Session


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of a run begins. `phase` is one of start, plan, write, publish, commit, wait, end.

    `offsets` is the size of the batch that is written.
    """

    phase: str
    message: str
    batch_id: str = ""
    offsets: int = 0


OnProgress = Callable[[Progress], None]


def sample_values(session: Session) -> list[bytes]:
    """Values of some records of the source topics, from which the columns of a new table can be inferred."""
    topics, settings = session.pipeline.config.source.topics, session.pipeline.kafka.properties
    return source.sample_values(settings, topics, source.SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S)

"""What the sensor of a source looks at: the system, by what the source itself says, and the control log."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import dagster as dg

from calve.orchestration.dagster.common.arrivals import ALL
from calve.orchestration.dagster.common.topics import system_key
from calve.orchestration.dagster.common.trigger import Sight
from calve.orchestration.dagster.common.watch import FollowedLog, answer_of, taken
from calve.sink_core.codes import Code
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.errors import FindingError, ProtocolError, Unreachable
from calve.sink_core.source.base import Stored, Waiting
from calve.sink_core.source.opening import OpenedSource
from calve.sink_core.source.state import SOURCE, SourceState
from calve.sink_core.source.systems import spec_of
from calve.sink_core.timing import apart

GRACE_S = 1.0
"""What answers at once is seen in the tick that asks; what takes longer is for the next one."""

SILENT_S = 60.0
"""A look that was not answered for so long says nothing of the pending records of now."""


@dataclass(slots=True)
class Looks:
    """What a system says waits, asked in a thread of its own, never twice at a time.

    Nobody waits for an answer: one that never comes keeps one thread of the code server, and none of those that ticks
    of all pipelines share. The source is used by that thread alone.
    """

    pipeline: SourcePipeline
    _source: OpenedSource | None = None
    _asked: tuple[int, float, Future[Waiting]] | None = None
    _last: tuple[int, Waiting] | None = None

    def latest(self, offsets: Stored, at: int) -> Waiting:
        """The pending records behind these offsets, which are those of the log up to its offset `at`.

        An answer for other offsets is none. Raises what the source raised, and Unreachable while nothing is known.
        """
        age_s = 0.0
        # Twice, for the first answer may be to an earlier question.
        for _ in range(2):
            if self._asked is None:
                self._asked = at, time.monotonic(), apart(partial(self._ask, dict(offsets)), "calve-look")
            asked_at, begun_s, answer = self._asked
            with suppress(TimeoutError):
                # A TimeoutError of the source has become one of Calve's.
                answer.exception(timeout=GRACE_S)
            age_s = time.monotonic() - begun_s
            if not answer.done():
                break
            self._asked = None
            self._last = None if answer.exception() else (asked_at, answer.result())
            if asked_at == at or self._last is None:
                return answer.result()
        if self._last is not None and self._last[0] == at and (self._last[1].records or age_s < SILENT_S):
            return self._last[1]
        raise Unreachable(
            f"{self.pipeline.reads}: no answer for {age_s:.0f} s to what is pending there",
            hint="is it up, and is a table locked or very large? it is asked again once it has answered",
            code=Code.SOURCE_SILENT,
        )

    def _ask(self, offsets: Stored) -> Waiting:
        self._source = self._source or OpenedSource(spec_of(self.pipeline))
        return self._source.waiting(offsets)


class SourceWatch:
    """One pipeline's system and control log; connects at the first look. Sensor and schedules may look at once."""

    def __init__(self, pipeline: SourcePipeline) -> None:
        self._pipeline = pipeline
        self._log = FollowedLog(pipeline, SOURCE)
        self._looks = Looks(pipeline)
        self._looking = threading.Lock()
        self._waiting: Waiting | None = None
        self._through_s: dict[str, float] = {}

    def look(self) -> Sight:
        """Raises what the source raises, and Unreachable if broker or source don't answer in time."""
        try:
            return self._look()
        except (FindingError, ProtocolError) as error:
            return Sight(lag=0, end=0, bootstrapped=True, answer=None, contradiction=error.message)

    def observations(self) -> list[dg.AssetObservation]:
        """What the source said waits."""
        waiting = self._waiting
        if waiting is None:
            return []
        held = {} if waiting.held_bytes is None else {"held bytes": waiting.held_bytes}
        return [
            dg.AssetObservation(
                system_key(self._pipeline),
                metadata={"waiting records": waiting.records, "waiting": waiting.what, **held},
            )
        ]

    def through_s(self) -> Mapping[str, float]:
        """Up to when all is sent that had come, by what the source says; where it says nothing, the last publish."""
        return dict(self._through_s)

    def state(self) -> SourceState | None:
        """The control log's fold as of now, whatever the source says; None if the pipeline has never run."""
        return self._log.state()

    def _look(self) -> Sight:
        state = self._log.state()
        offsets, at = (state.offsets, state.next_offset) if state is not None else ({}, 0)
        with taken(self._looking, self._pipeline.reads):
            waiting = self._waiting = self._looks.latest(offsets, at)
        sight = Sight(
            lag=waiting.records,
            end=(state.records if state is not None else 0) + waiting.records,
            bootstrapped=state is not None and state.last_publish is not None,
            paused=str(state.paused) if state is not None and state.paused is not None else None,
            answer=answer_of(state),
            published_s=state.complete.event.written_at_ms / 1000 if state is not None and state.complete else 0.0,
        )
        if sight.bootstrapped:
            since_s = waiting.since_ms / 1000 if waiting.since_ms is not None else sight.published_s
            self._through_s[ALL] = since_s if waiting.records else time.time()
        return sight

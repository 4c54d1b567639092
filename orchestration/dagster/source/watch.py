"""What the sensor of a source looks at: the system, by what the source itself says, and the control log."""

from __future__ import annotations

import threading

import dagster as dg

from calve.orchestration.dagster.common.topics import system_key
from calve.orchestration.dagster.common.trigger import Sight
from calve.orchestration.dagster.common.watch import READ_TIMEOUT_S
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import ConfigError, FindingError, ProtocolError, TerminalError
from calve.sink_core.kafka import clients
from calve.sink_core.source.base import Waiting
from calve.sink_core.source.opening import OpenedSource
from calve.sink_core.source.state import SOURCE, SourceState
from calve.sink_core.source.systems import spec_of


class SourceWatch:
    """One pipeline's system and control log; connects at the first look. Sensor and schedule may look at once."""

    def __init__(self, pipeline: SourcePipeline) -> None:
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._source: OpenedSource | None = None
        self._log: ControlLog[SourceState] | None = None
        self._waiting: Waiting | None = None

    def look(self) -> Sight:
        """Raises what the source raises, and Unreachable if the broker doesn't answer in time."""
        with self._lock:
            try:
                return self._look()
            except (FindingError, ProtocolError) as error:
                self._forget()
                return Sight(lag=0, end=0, bootstrapped=True, contradiction=error.message)
            except TerminalError:
                self._forget()
                raise

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

    def state(self) -> SourceState | None:
        """The control log's fold as of now; None if the pipeline has never run."""
        self.look()
        return self._log.state if self._log is not None else None

    def _look(self) -> Sight:
        self._source = self._source or OpenedSource(spec_of(self._pipeline))
        log = self._log = self._log or self._opened()
        state = log.refresh(timeout_s=READ_TIMEOUT_S) if log is not None else None
        waiting = self._waiting = self._source.waiting(state.offsets if state is not None else {})
        return Sight(
            lag=waiting.records,
            end=(state.records if state is not None else 0) + waiting.records,
            bootstrapped=state is not None and state.last_publish is not None,
            paused=str(state.paused) if state is not None and state.paused is not None else None,
            answered_s=state.answered_ms / 1000 if state is not None else 0.0,
            published_s=state.complete.event.written_at_ms / 1000 if state is not None and state.complete else 0.0,
        )

    def _opened(self) -> ControlLog[SourceState] | None:
        """The control log if there is one: a pipeline that has never run has none."""
        settings = self._pipeline.kafka.properties
        log = ControlLog(settings, self._pipeline.control_topic, SOURCE, admin=clients.admin(settings))
        try:
            return log if log.open(create=False) else None
        except ConfigError:
            return None

    def _forget(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None

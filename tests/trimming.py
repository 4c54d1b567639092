"""Trims of a pipeline's control topic, for tests of what they take and of what happens beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.log import ControlLog
from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.control.trim import trim
from calve.sink_core.kafka import clients
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.proof import VerifyReport
from tests.pipelines import Flow

AT_ONCE = {"maintenance": {"trim": {"older_than": "0s"}}}


def untried(directory: Path, broker: Broker, topic: str) -> Flow:
    """A pipeline without a batch, whose trim may take everything."""
    return Flow.create(directory, broker.bootstrap, topic, extra=AT_ONCE)


def run(flow: Flow, batches: int, start: int = 0) -> None:
    """Batches of five ids each, in turn on the two partitions."""
    for number in range(batches):
        first = start + 5 * number
        flow.produce(range(first, first + 5), partition=number % 2)
        flow.run()


def trimmed(flow: Flow, **options: Any) -> TaskOutcome:
    with flow.session() as session:
        session.bind()
        return trim(session, **{"older_than_s": 0, **options})


def log_start(flow: Flow) -> int:
    settings = flow.pipeline.kafka.properties
    return ControlLog(settings, flow.pipeline.control_topic, SINK, admin=clients.admin(settings)).log_start()


def proof(flow: Flow, *, deep: bool = True) -> VerifyReport:
    with flow.session() as session:
        return verify(session, deep=deep)

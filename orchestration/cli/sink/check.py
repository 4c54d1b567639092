"""What `calve check` asks of a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from calve.orchestration.cli.check import Checkup, last_checks
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.checklist import Check, Outcome, answers
from calve.sink_core.control.checking.kernels import reading_check
from calve.sink_core.sink.checks.acls import kafka_acls_lines
from calve.sink_core.sink.checks.executors import probe_of
from calve.sink_core.sink.checks.kafka import KafkaChecks
from calve.sink_core.sink.checks.registry import registry_checks
from calve.sink_core.sink.checks.state import pipeline_state
from calve.sink_core.sink.checks.tables import TableChecks


def checkup(pipeline: SinkPipeline, *, spark: bool) -> Checkup:
    """Its Kafka, registry, tables, state and engine."""
    return Checkup(partial(_outcomes, pipeline, spark=spark), partial(kafka_acls_lines, pipeline))


def _outcomes(pipeline: SinkPipeline, before: Callable[[Check], None], *, spark: bool) -> Iterator[Outcome]:
    kafka = KafkaChecks(pipeline)
    with TableChecks(pipeline, kafka.sample_values) as tables:
        registry = registry_checks(pipeline, kafka.sample_values)
        last = last_checks(pipeline, partial(probe_of, pipeline), spark=spark)
        needs = ("kafka", "topics", "control topic", "source group", "catalog")
        state = Check("pipeline", lambda: pipeline_state(pipeline), needs=needs)
        checks = [*kafka.checks(), *registry, *tables.checks(), state, reading_check(), *last]
        yield from answers(checks, before=before)

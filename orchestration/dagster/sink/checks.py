"""Asset checks: after each ingest run within it, and on a schedule in a job of their own, the proof then too."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.checks import check_specs, checks_op, told_by_run
from calve.orchestration.dagster.common.verdicts import Verdict
from calve.orchestration.dagster.sink import verdicts
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import CalveError

PROOF_WITHIN_S = 1200.0
"""Dagster ends the job of the checks, and the proof with it, half an hour after its start."""

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session


def specs(pipeline: SinkPipeline) -> list[dg.AssetCheckSpec]:
    """All checks of a pipeline."""
    rows = ((check, s) for check in verdicts.CHECKS for s in verdicts.subjects(check, pipeline))
    return check_specs(pipeline, ((check, asset_key(pipeline, subject)) for check, subject in rows))


def checks_of(pipeline: SinkPipeline) -> dg.AssetChecksDefinition:
    """All of them, the proof among them."""

    def find(session: "Session") -> Iterator[Verdict]:
        yield from look(pipeline, session)
        yield from prove(pipeline, session)

    return checks_op(pipeline, specs(pipeline), run_session, find, partial(asset_key, pipeline))


def look(pipeline: SinkPipeline, session: "Session") -> list[Verdict]:
    """Every verdict but the proof."""
    from calve.sink_core.sink.status import status

    return verdicts.health(pipeline, status(session), session.log.state.batches.values())


def prove(pipeline: SinkPipeline, session: "Session") -> Iterator[Verdict]:
    """The proof, as far back as `dagster.prove_since` says, or why it was given up; nothing where there is nothing to
    prove yet.
    """
    from calve.sink_core.sink.verify.proof import verify

    back_s = pipeline.config.dagster.prove_since
    since_ms = None if back_s is None else time.time_ns() // 1_000_000 - round(back_s * 1000)
    if session.log.state.last_publish is not None:
        try:
            report = verify(session, deep=False, since_ms=since_ms, within_s=PROOF_WITHIN_S)
        except CalveError as error:
            yield verdicts.not_proven(pipeline, str(error))
        else:
            yield verdicts.proof(pipeline, report)


def evaluations(pipeline: SinkPipeline, found: Iterable[Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events of a run that moves something."""
    return told_by_run(pipeline, found, partial(asset_key, pipeline))


def asset_key(pipeline: SinkPipeline, table: str | None) -> dg.AssetKey:
    return batches_key(pipeline) if table is None else table_key(pipeline, table)

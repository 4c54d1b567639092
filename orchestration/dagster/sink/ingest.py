"""The ingest op: bounded batches in a loop, each told to Dagster as it is published and as tables take it in."""

# Without postponed annotations: Dagster looks at `config`'s as it stands.

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common import tags
from calve.orchestration.dagster.common.moving import RunConfig, bounds_of, log_progress, say_moved
from calve.orchestration.dagster.common.names import CHECKS, job_name, op_name, pool, resource_key
from calve.orchestration.dagster.common.runs import held_by_pause
from calve.orchestration.dagster.common.spark import start_of
from calve.orchestration.dagster.sink import checks, metadata, specs, table_page, verdicts
from calve.orchestration.dagster.sink.names import COMMIT, INGEST, batches_key, table_key
from calve.orchestration.dagster.sink.session import run_session
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import CalveError

if TYPE_CHECKING:
    from calve.sink_core.control.rounds import Bounds
    from calve.sink_core.sink.batches import BatchReport
    from calve.sink_core.sink.loop.coordinator import CommitReport
    from calve.sink_core.sink.loop.session import Session
    from calve.sink_core.sink.run import RunReport
    from calve.sink_core.tables.commit import TableCommit

PROOF_EVERY_S = 600.0
PROOF_ALWAYS_TO = 100
"""Published batches up to which the proof is made after every run."""

PROOF_TO = 20_000
"""Published batches up to which runs make it at all: records wait for as long as that takes, up to a millisecond for
each batch. Beyond there is the job of the checks, each hour."""

PROOF_MISSED_S = 86_400.0
"""Nobody has made it for so long."""

Told = dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[Any]


def ingest_of(pipeline: SinkPipeline) -> dg.AssetsDefinition:
    """The owner of the pipeline's batches."""

    @dg.multi_asset(
        name=op_name(pipeline, INGEST),
        specs=[specs.batches(pipeline)],
        pool=pool(pipeline, INGEST),
        required_resource_keys={resource_key(pipeline)},
    )
    def ingest(context: dg.AssetExecutionContext, config: RunConfig) -> Iterator[Told]:
        start = start_of(getattr(context.resources, resource_key(pipeline)))
        with run_session(context, pipeline, start) as session:
            yield from _Run(context, pipeline, session).through(bounds_of(pipeline, config))

    return ingest


@dataclass(slots=True)
class _Run:
    """One run and what it has told so far."""

    context: dg.AssetExecutionContext
    pipeline: SinkPipeline
    session: "Session"
    pages_told: set[str] = field(default_factory=set[str])
    ledger: "TableCommit | None" = None
    """Its last commit, told at the end: of each batch it says nothing that the batch does not."""

    def through(self, bounds: "Bounds") -> Iterator[Told]:
        from calve.sink_core.sink.batches import BatchReport
        from calve.sink_core.sink.run import RunReport, run_steps

        report, committing = RunReport(), self.pipeline.config.commit.every == "batch"
        progress = partial(log_progress, self.context)
        steps = run_steps(self.session, report, bounds=bounds, on_progress=progress, committing=committing)
        # Telling takes Dagster a while, for which the commit of a batch need not wait.
        waiting: BatchReport | None = None
        try:
            for step in steps:
                yield from self._batch(waiting)
                waiting = None
                if not isinstance(step, BatchReport):
                    yield from self._commit(step)
                elif committing:
                    waiting = step
                else:
                    yield from self._batch(step)
        except Exception:
            yield from self._batch(waiting)
            yield from self._landed(self.ledger)
            raise
        yield from self._batch(waiting)
        yield from self._landed(self.ledger)
        yield from self._empty_dead_letters()
        self._say(report)
        yield from self._checks()
        report.raise_failures()
        if self._commit_has_work():
            # The output is what makes the commit op run; each batch has been told above.
            yield dg.MaterializeResult(
                asset_key=batches_key(self.pipeline),
                metadata={"records": 0},
                data_version=dg.DataVersion(tags.STREAM),
            )

    def _batch(self, batch: "BatchReport | None") -> Iterator[dg.AssetMaterialization]:
        if batch is not None and batch.published:
            yield dg.AssetMaterialization(
                batches_key(self.pipeline), metadata=metadata.of_batch(batch), tags=tags.of_version()
            )

    def _commit(self, report: "CommitReport") -> Iterator[dg.AssetMaterialization]:
        for landed in report.landed:
            if landed.table == self.pipeline.ledger_table:
                self.ledger = landed
            else:
                yield from self._landed(landed)

    def _landed(self, landed: "TableCommit | None") -> Iterator[dg.AssetMaterialization]:
        if landed is not None:
            page = dict[str, Any]()
            if landed.table not in self.pages_told:
                self.pages_told.add(landed.table)
                page = table_page.of_table(self.pipeline, self.session, landed.table)
            yield table_page.landed(self.pipeline, landed, **page)

    def _empty_dead_letters(self) -> Iterator[dg.AssetMaterialization]:
        """Their table, with the first commit of a pipeline: at rest it has no asset that was never made."""
        name = self.pipeline.dead_letter_table
        if self.ledger is not None and table_page.is_untold(self.context, self.pipeline, name):
            page = table_page.of_table(self.pipeline, self.session, name)
            yield dg.AssetMaterialization(table_key(self.pipeline, name), metadata=page)

    def _checks(self) -> Iterator[dg.AssetCheckEvaluation]:
        """Without them a run is still a good run."""
        try:
            found = checks.look(self.pipeline, self.session)
            found = [*found, *self._proof()]
        except CalveError as error:
            self.context.log.warning(f"the checks could not be made: {error}")
        else:
            yield from checks.evaluations(self.pipeline, found)

    def _commit_has_work(self) -> bool:
        """Whether the commit op is in this run, as with "Materialize all", and would commit something."""
        state, follows = self.session.log.state, op_name(self.pipeline, COMMIT)
        in_run = any(node.name == follows for node in self.context.job_def.nodes)
        return in_run and state.paused is None and bool(state.tables_with_news())

    def _proof(self) -> Iterator[verdicts.Verdict]:
        """It reads the whole ledger, which takes its time once there is much of it; beside these it has a schedule. A
        ledger that is too long for a run is named where nobody else has proven it.
        """
        published, age_s = self.session.log.state.published, self._proof_age_s()
        if published <= PROOF_ALWAYS_TO or (published <= PROOF_TO and age_s > PROOF_EVERY_S):
            yield from checks.prove(self.pipeline, self.session)
        elif published > PROOF_TO and age_s > PROOF_MISSED_S:
            job = job_name(self.pipeline, CHECKS)
            why = f"nothing was proven for a day, and {published:,} batches are too many for a run: have {job} do it"
            yield verdicts.not_proven(self.pipeline, why)

    def _proof_age_s(self) -> float:
        """How long ago the last one was, as Dagster has it."""
        key = dg.AssetCheckKey(table_key(self.pipeline, self.pipeline.ledger_table), verdicts.PROOF.name)
        last = self.context.instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
        return math.inf if last is None else time.time() - last.create_timestamp

    def _say(self, report: "RunReport") -> None:
        if held_by_pause(self.context, self.pipeline, self.session.log.state.paused) and not report.batches:
            return
        published = [batch for batch in report.batches if batch.published]
        records = sum(batch.records for batch in published)
        say_moved(self.context, records, len(published), report.ended, (each.written_by for each in published))

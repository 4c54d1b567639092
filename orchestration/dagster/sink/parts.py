"""A sink in Dagster: topics → batches → tables, with its checks, jobs and schedules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common.names import CHECKS
from calve.orchestration.dagster.common.operations import pausing, resolving
from calve.orchestration.dagster.common.operations.job import operator_jobs
from calve.orchestration.dagster.common.operations.maintenance import maintenance_jobs, maintenance_schedules
from calve.orchestration.dagster.common.parts import Parts, asset_job
from calve.orchestration.dagster.common.schedules import checks_schedule
from calve.orchestration.dagster.common.topics import reads, source_topics
from calve.orchestration.dagster.sink.checks import asset_key, checks_of
from calve.orchestration.dagster.sink.commit import commit_of, commit_schedule
from calve.orchestration.dagster.sink.ingest import ingest_of
from calve.orchestration.dagster.sink.names import COMMIT, INGEST, table_key
from calve.orchestration.dagster.sink.operations import dead_letters, looking, replay
from calve.orchestration.dagster.sink.operations.maintenance import maintaining
from calve.orchestration.dagster.sink.session import run_session
from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from calve.sink_core.control.answers import Answers
    from calve.sink_core.sink.loop.session import Session


def sink_parts(pipeline: SinkPipeline) -> Parts:
    """Raises ConfigError for tables that Dagster can't tell apart, and for what no schedule can express."""
    _check_distinct(pipeline)
    ingest, commit, checks, watch = ingest_of(pipeline), commit_of(pipeline), checks_of(pipeline), SinkWatch(pipeline)
    run, every, source = pipeline.config.run, pipeline.config.commit.every, pipeline.config.source
    into = " into its tables" if every == "batch" else ""
    commit_job = asset_job(
        pipeline,
        COMMIT,
        dg.AssetSelection.assets(commit).without_checks(),
        f"Commits what {pipeline.name} has published to its tables.",
    )
    proves = f"Proves and checks {pipeline.name}."
    checks_job = asset_job(pipeline, CHECKS, dg.AssetSelection.checks(checks), proves)
    looks = f"Proves the ledger of {pipeline.name} and looks at lag, freshness, retention and files."
    upkeep = maintaining(pipeline)
    maintenance = maintenance_jobs(pipeline, upkeep)
    return Parts(
        stage=INGEST,
        moves=asset_job(
            pipeline,
            INGEST,
            dg.AssetSelection.assets(ingest).without_checks(),
            f"Moves the records that are pending for {pipeline.name}{into}, batch after batch, each exactly once.",
            within_s=run.max_duration + run.linger,
        ),
        watch=watch,
        reads=reads(source),
        assets=[*source_topics(pipeline, source, pipeline.kafka.name), ingest, commit],
        checks=[checks],
        key_of=partial(asset_key, pipeline),
        fresh=[table.name for table in pipeline.tables],
        jobs=[commit_job, checks_job, *_operations(pipeline), *maintenance.values()],
        schedules=[
            *([] if every == "batch" else [commit_schedule(pipeline, every, commit_job, watch)]),
            checks_schedule(pipeline, checks_job, looks),
            *maintenance_schedules(pipeline, maintenance, watch, off=upkeep.off),
        ],
    )


def _operations(pipeline: SinkPipeline) -> list[dg.JobDefinition]:
    """What an operator does by hand."""
    by_hand = [
        pausing.pause(pipeline),
        pausing.resume(pipeline),
        resolving.resolve(pipeline, _answers_of),
        looking.verify(pipeline),
        looking.positions(pipeline),
        replay.replay(pipeline),
        replay.replay_hours(pipeline),
        dead_letters.listing(pipeline),
        dead_letters.replay(pipeline),
    ]
    return operator_jobs(pipeline, by_hand, run_session)


def _answers_of(session: Session) -> Answers[Session]:
    from calve.sink_core.sink.resolve.resolve import answers_of

    return answers_of(session)


def _check_distinct(pipeline: SinkPipeline) -> None:
    known: dict[str, str] = {}
    for table in pipeline.table_names:
        other = known.setdefault(table_key(pipeline, table).to_python_identifier(), table)
        if other != table:
            raise ConfigError(
                f"{pipeline.path}: tables: Dagster can't tell {table} from {other}: to it - and _ are the same",
                hint="rename one of them, or feed it from another pipeline",
                code=Code.DAGSTER_NAMES,
            )

"""`calve run` and `calve commit`: the pipeline without a daemon.

What a kind does for `run` is called with the pipeline, the bounds of the run and `as_json`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calve.orchestration.cli.boundary import command, raise_failures
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind, sink
from calve.orchestration.cli.output import error_document, say, say_json, working

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.coordinator import CommitReport
    from calve.sink_core.tables.commit import TableCommit


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "run")(run)
    command(app, "commit")(commit)


def run(
    file: PipelineFile,
    max_batches: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N batches. Default: run.max_batches.")
    ] = None,
    linger: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stay until nothing has come for TIME, such as 5s. Default: run.linger."),
    ] = None,
    connections: ConnectionsFile = None,
    as_json: AsJson = False,
) -> None:
    """Plan, write, publish and commit until the pipeline is caught up; of a mirror: copy.

    Exit code 0: done, also if another run was faster; 1: stopped on a finding; 2: the files are wrong; 3: a part did
    not answer.
    """
    from dataclasses import replace

    from calve.orchestration.times import duration_s
    from calve.sink_core.control.rounds import Bounds

    pipeline, body = of_kind("run", file, connections)
    bounds = Bounds.of(pipeline)
    bounds = replace(
        bounds,
        max_batches=bounds.max_batches if max_batches is None else max_batches,
        linger_s=bounds.linger_s if linger is None else duration_s(linger, "--linger"),
    )
    body(pipeline, bounds, as_json=as_json)


def commit(file: PipelineFile, connections: ConnectionsFile = None, as_json: AsJson = False) -> None:
    """Take what is published into its tables; the coordinator alone. Safe beside a run, and twice at once."""
    from calve.spark_jobs.engine import session_on_spark

    pipeline = sink("commit", file, connections)
    with working("connecting") as status, session_on_spark(pipeline) as session:
        if not session.read_only():
            _nothing(f"pipeline {pipeline.name} has not run yet: nothing is published", as_json=as_json)
            return
        session.bind()
        if (paused := session.log.state.paused) is not None:
            _nothing(str(paused), as_json=as_json)
            return
        status.update("committing")
        on_table = None if as_json else _say_table
        report = session.coordinator().commit(tables=session.pipeline.table_names, on_table=on_table)
    if as_json:
        say_json(commit_document(report))
    raise_failures(report, as_json=as_json)


def _nothing(why: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"ended": why, "commits": [], "failed": {}})
    else:
        say(why)


def _say_table(table: TableCommit) -> None:
    if table.landed:
        say(f"{table.table}: {table.rows:,} rows in {table.files:,} files, snapshot {table.snapshot_id}")
    else:
        say(f"{table.table}: nothing new")


def commit_document(report: CommitReport) -> dict[str, Any]:
    """Snapshot ids as text: they exceed what JSON readers keep exactly."""
    return {
        "commits": [{**asdict(c), "snapshot_id": c.snapshot_id and str(c.snapshot_id)} for c in report.commits],
        "failed": {table: error_document(error) for table, error in report.failed.items()},
        "valid_through_ms": report.valid_through_ms,
    }

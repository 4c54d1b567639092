"""`calve run` and `calve commit`: the pipeline without a daemon.

What a kind does for `run` is called with its control plane, `bounds`, `on_progress`, `on_batch`; it returns a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from calve.orchestration.cli.boundary import command, raise_failures
from calve.orchestration.cli.kinds import KINDS
from calve.orchestration.cli.options import AsJson, ConnectionsFile, PipelineFile, of_kind, sink
from calve.orchestration.cli.output import say, say_json, show, show_lines, working

if TYPE_CHECKING:
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
    with working("connecting") as status, KINDS[pipeline.kind].start(pipeline) as plane:
        report = body(
            plane,
            bounds=bounds,
            on_progress=lambda step: status.update(f"{step.phase}: {step.message}"),
            on_batch=lambda batch: None if as_json else show_lines(batch.lines()),
        )
    show(report, as_json=as_json)
    raise_failures(report, as_json=as_json)


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
        say_json(report.to_json())
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

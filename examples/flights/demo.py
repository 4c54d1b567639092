"""The demo: real flights from Kafka into Iceberg through Calve's Dagster job, and the proof that all are there once.

Everything it makes is in `.demo/` (or `CALVE_DEMO_DIR`). It starts the embedded broker there if none runs, and stops it
at the end; the data stays, and a second run goes on from it.
"""

# ruff: noqa: E402
from __future__ import annotations

import signal

# The imports take a second or two, in which there is nothing to clean up yet and a traceback would help nobody.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import local
import produce
import show
from dagster import DagsterInstance
from local import PIPELINE, ROOT
from pyiceberg.catalog import Catalog

from calve import CalveError
from calve.orchestration.dagster.common.names import job_name
from calve.orchestration.dagster.sink.names import INGEST
from calve.orchestration.defs.flights_by_carrier import delays_by_carrier
from calve.sink_core.config.load import load_as
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.tables.history.record import SummaryKeys

FLIGHTS = "air.flights"
CONSOLE = show.console()
QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def main() -> int:
    options = _options()
    local.interruptible()
    directory = local.folder()
    try:
        with local.alone(directory):
            _say(f"Kafka, Dagster and the lake are in {directory}")
            with (
                local.running_broker(directory / "broker") as bootstrap,
                local.opened_instance(directory / "dagster") as instance,
            ):
                # Of a demo that was killed. No sensor looks here, and their places in the pools would stay taken.
                local.close_runs(instance)
                return _demo(bootstrap, instance, options.limit)
    except CalveError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code


def _demo(bootstrap: str, instance: DagsterInstance, limit: int | None) -> int:
    """Fill the topic, run the job, show what it made, prove it. Returns the exit code."""
    produced = produce.fill(bootstrap, limit)
    _say(f"{produced:,} events produced" if produced else "the topic is filled already, nothing produced")
    pipeline = load_as(SinkPipeline, ROOT / PIPELINE)
    with open_catalog(pipeline.catalog) as catalog:
        before = show.total_rows(load_if_there(catalog, FLIGHTS))
        if code := _ingest(pipeline, instance):
            return code
        dg.materialize([delays_by_carrier], instance=instance, run_config=QUIET)
        _show(pipeline, catalog)
        _say(_growth(before, show.total_rows(catalog.load_table(FLIGHTS))))
    code = local.calve(CONSOLE, "verify", str(PIPELINE), "--deep") or local.calve(CONSOLE, "status", str(PIPELINE))
    _how_to_go_on()
    return code


def _ingest(pipeline: SinkPipeline, instance: DagsterInstance) -> int:
    """Run the pipeline's job as a user would, in a process of its own, and tell what happens. Returns the exit code."""
    job, log = job_name(pipeline, INGEST), Path(instance.root_directory) / "launch.log"
    # Nothing more comes, so there is nothing to wait for.
    config = json.dumps({"ops": {f"{pipeline.name}_ingest": {"config": {"linger_s": 0}}}})
    command = ["dg", "launch", "--job", job, "--config-json", config]
    local.show_command(CONSOLE, command)
    before = {run.run_id for run in instance.get_runs()}
    with log.open("wb") as output:
        launched = subprocess.Popen(  # noqa: S603 - our own command
            [str(local.BIN / "dg"), *command[1:]],
            cwd=ROOT,
            # Ctrl-C is for us; we end it.
            start_new_session=True,
            env={**os.environ, "VIRTUAL_ENV": sys.prefix},
            stdout=output,
            stderr=output,
        )
        try:
            for line in _told(instance, launched, before):
                CONSOLE.print(f"  {line}", markup=False, soft_wrap=True)
        finally:
            _end(launched, instance)
    if launched.returncode:
        _say(f"the job failed; all it said is in {log}")
    return launched.returncode


def _told(instance: DagsterInstance, launched: subprocess.Popen[bytes], before: set[str]) -> Iterator[str]:
    """What the run that is none of those `before` says, until its process has ended."""
    run_id, cursor, running = None, None, True
    while running:
        running = launched.poll() is None
        run_id = run_id or next((run.run_id for run in instance.get_runs(limit=1) if run.run_id not in before), None)
        if run_id:
            said = instance.get_records_for_run(run_id, cursor)
            cursor = said.cursor
            yield from (line for record in said.records if (line := show.event(record.event_log_entry)))
        if running:
            time.sleep(0.2)


def _end(launched: subprocess.Popen[bytes], instance: DagsterInstance) -> None:
    """End the job's processes if they still run."""
    if launched.poll() is not None:
        return
    processes = local.family(launched.pid)
    local.ask_runs_to_end(instance)
    launched.send_signal(signal.SIGINT)
    local.end(processes)
    launched.wait()


def _show(pipeline: SinkPipeline, catalog: Catalog) -> None:
    flights = catalog.load_table(FLIGHTS)
    keys = SummaryKeys(pipeline.name, pipeline.control_topic, pipeline.group)
    for table in (
        show.rows_by_month(flights),
        show.snapshots(flights, keys),
        show.delays(catalog.load_table("air.delays_by_carrier"), produce.airlines()),
        show.dead_letters(catalog.load_table(pipeline.dead_letter_table)),
        show.ledger(catalog.load_table(pipeline.ledger_table)),
    ):
        CONSOLE.print(table)


def _growth(before: int, after: int) -> str:
    if after == before:
        return f"{FLIGHTS} had {before:,} rows before this run and has {after:,} now: nothing was added twice"
    return f"{FLIGHTS} had {before:,} rows before this run and has {after:,} now"


def _how_to_go_on() -> None:
    directory = os.environ["CALVE_DEMO_DIR"]
    _say("to see it live in Dagster, with flights that keep coming: make dev")
    _say("the data stays; to look around with `calve`:")
    CONSOLE.print(f"  .venv/bin/calve broker start --dir {directory}/broker", soft_wrap=True)
    for name in ("CALVE_DEMO_DIR", "CALVE_DEMO_BOOTSTRAP"):
        CONSOLE.print(f"  export {name}={os.environ[name]}", soft_wrap=True)
    CONSOLE.print(f"  .venv/bin/calve status {PIPELINE}")


def _say(sentence: str) -> None:
    CONSOLE.print(f"[bold green]demo[/bold green] {sentence}", soft_wrap=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="produce only the first N flights", metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""Many pipelines in one code location, some with brokers that don't answer: `python -m bench.pipelines`.

Says how long the location takes to load, how long the sensors' ticks take and how long a pipeline waits for its next.
The healthy pipelines are paused, so that no run is started: a tick then asks Kafka all it ever asks.

A daemon on a new instance first writes a record for every asset and every schedule, which takes it a minute or two for
this many; the waits until then are told apart.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from bench.measure import ROOT
from bench.workload import new_topic, write_pipeline
from calve.orchestration.local import broker
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.events import Paused
from calve.sink_core.detached import free_port
from calve.sink_core.sink.loop.session import Session
from tests.e2e.dagster.stack import Stack, on_postgres, stack
from tests.postgres import postgres

DIRECTORY = ROOT / ".bench"
FIRST_ROUND_S = 30
FIRST_RECORDS_S = 90
LOAD = "import time; began = time.perf_counter(); import calve_test_defs; print(time.perf_counter() - began)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON document."""
    options = _options().parse_args(arguments)
    shutil.rmtree(DIRECTORY / "pipelines", ignore_errors=True)
    with ExitStack() as running:
        started = broker.start(DIRECTORY / "broker")
        running.callback(broker.stop, DIRECTORY / "broker")
        database = running.enter_context(postgres()) if options.postgres else None
        # Those that don't answer come first: whoever waited for them would show.
        servers = [f"127.0.0.1:{free_port()}" for _ in range(options.unreachable)]
        servers += [started.bootstrap] * (options.pipelines - options.unreachable)
        topic = new_topic(started.bootstrap)
        files = [_file(DIRECTORY / "pipelines" / f"p{i}", server, topic) for i, server in enumerate(servers)]
        pipelines = [load(file) for file in files]
        for pipeline in pipelines[options.unreachable :]:
            _pause(pipeline)
        found = _measure(
            files,
            pipelines[options.unreachable :],
            options.seconds,
            own_code_servers=options.own_code_servers,
            settings=on_postgres(database) if database else "",
        )
    print(json.dumps({"pipelines": options.pipelines, "unreachable": options.unreachable, **found}, indent=2))
    return 0


def _measure(
    files: Sequence[Path], healthy: Sequence[SinkPipeline], seconds: float, *, own_code_servers: bool, settings: str
) -> dict[str, object]:
    with stack(DIRECTORY / "pipelines" / "dagster", files, settings=settings) as dagster:
        load_s = _seconds_to_load(dagster)
        if not own_code_servers:
            dagster.code_server()
        dagster.daemon()
        # The first round loads the location and connects.
        time.sleep(FIRST_ROUND_S)
        started = time.time()
        time.sleep(FIRST_RECORDS_S)
        began = time.time()
        time.sleep(seconds)
        first: list[float] = []
        waits: list[float] = []
        took: list[float] = []
        for pipeline in healthy:
            ticks = dagster.ticks(f"{pipeline.name}_lag", limit=1000)
            first += _waits([tick.timestamp for tick in ticks], started, began)
            waits += _waits([tick.timestamp for tick in ticks], began, began + seconds)
            took += [t.end_timestamp - t.timestamp for t in ticks if t.end_timestamp and t.timestamp >= began]
        return {
            "location_loads_s": round(load_s, 2),
            "ticks": len(took),
            "tick_p50_s": round(statistics.median(took), 3),
            "tick_p95_s": round(statistics.quantiles(took, n=20)[-1], 3),
            "wait_for_a_tick_p50_s": round(statistics.median(waits), 1),
            "longest_wait_for_a_tick_s": round(max(waits), 1),
            "longest_wait_while_starting_s": round(max(first), 1),
        }


def _waits(ticks: Sequence[float], since: float, until: float) -> list[float]:
    """Seconds between ticks (UNIX timestamps), and from the interval's ends to the nearest."""
    at = sorted(tick for tick in ticks if since <= tick <= until)
    return [later - earlier for earlier, later in pairwise([since, *at, until])]


def _file(directory: Path, bootstrap: str, topic: str) -> Path:
    """A pipeline whose table has a key of its own in the location."""
    file = write_pipeline(directory, bootstrap, topic)
    file.write_text(file.read_text() + f"dagster: {{key_prefix: [{directory.name}]}}\n")
    return file


def _pause(pipeline: SinkPipeline) -> None:
    with Session.open(pipeline) as session:
        session.log.append(Paused(pipeline_id=session.bind().pipeline_id, by="bench", reason="only ticks are measured"))


def _seconds_to_load(dagster: Stack) -> float:
    command = [sys.executable, "-c", LOAD]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=dagster.directory, env=dagster.full_environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description="Ticks of many pipelines.")
    parser.add_argument("--pipelines", type=int, default=100, metavar="N", help="pipelines in the location (100)")
    parser.add_argument("--unreachable", type=int, default=2, metavar="N", help="of them with dead brokers (2)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="measured time (60)")
    parser.add_argument("--postgres", action="store_true", help="Dagster's storage is PostgreSQL, not SQLite")
    parser.add_argument(
        "--own-code-servers", action="store_true", help="no code server apart: the daemon starts one anew every minute"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

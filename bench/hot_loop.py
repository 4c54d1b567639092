"""What each microsecond of a record pays for, and its bytes: `python -m bench.hot_loop`.

A run over the topic of `bench.throughput` with its tasks in this process, whose steps are timed by the CPU clock of
their thread, each without the steps within it. librdkafka's threads are what is left of the process.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import calve.sink_core.kafka.reader
import calve.sink_core.sink.loop.engine
import calve.sink_core.sink.write.task
from bench.measure import ROOT
from bench.workload import fill, write_pipeline
from calve.orchestration.local import broker
from calve.sink_core.config.load import load
from calve.sink_core.iceberg.write import writer
from calve.sink_core.kafka import librdkafka
from calve.sink_core.kafka.columns import Columns
from calve.sink_core.records.decode import convert
from calve.sink_core.records.json.table import Table
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline

DIRECTORY = ROOT / ".bench"
WARM_UP_RECORDS = 200_000
STEPS: tuple[tuple[Any, str, str], ...] = (
    (librdkafka.Consumer, "consume", "librdkafka hands over what it has queued"),
    (Columns, "receive", "messages taken apart into columns"),
    (calve.sink_core.kafka.reader.RangeReader, "_advance", "offsets in order, counts"),
    (Table, "read", "JSON parsed by the kernel, columns of it"),
    (convert.Converter, "convert", "columns to the table's types"),
    (calve.sink_core.sink.write.task, "kafka_array", "the column _kafka"),
    (writer._OpenFile, "append", "Parquet: encoded, compressed, written"),
    (calve.sink_core.sink.write.task._Work, "store", "all else of routing and gathering"),
    (calve.sink_core.sink.loop.engine, "run_task", "all else of reading"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_loop", description="Microseconds of a record.")
    parser.add_argument("--records", type=int, default=4_000_000, metavar="N", help="events in the topic (4,000,000)")
    records = parser.parse_args(arguments).records
    shutil.rmtree(DIRECTORY / "hot-loop", ignore_errors=True)
    spent: dict[str, float] = defaultdict(float)
    within = [0.0]
    for owner, name, label in STEPS:
        setattr(owner, name, _timed(getattr(owner, name), label, spent, within))
    started = broker.start(DIRECTORY / "broker")
    try:
        for number in (WARM_UP_RECORDS, records):
            topic = fill(started.bootstrap, number)
            directory = DIRECTORY / "hot-loop" / str(number)
            file = write_pipeline(directory, started.bootstrap, topic)
            spent.clear()
            process_s, thread_s = time.process_time(), time.thread_time()
            with Session.open(load(file)) as session:
                run_pipeline(session)
            process_s, thread_s = time.process_time() - process_s, time.thread_time() - thread_s
        fetched = _bytes((DIRECTORY / "broker" / "data").glob(f"{topic}-*/*.log"))
        written = _bytes((directory / "warehouse" / "bench" / "events" / "data").rglob("*.parquet"))
    finally:
        broker.stop(DIRECTORY / "broker")
    rows = sorted(spent.items(), key=lambda row: -row[1])
    rows += [("plan, publish, commit", thread_s - sum(spent.values()))]
    rows += [("librdkafka's threads: fetched, unpacked", process_s - thread_s), ("all", process_s)]
    print("| | µs a record |\n|---|---:|")
    for label, seconds in rows:
        print(f"| {label} | {seconds / records * 1e6:.2f} |")
    print(f"\nA record has {fetched / records:.0f} bytes in the topic and {written / records:.0f} in the table.")
    return 0


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _timed(step: Callable[..., Any], label: str, spent: dict[str, float], within: list[float]) -> Callable[..., Any]:
    """The step, its time noted without that of the steps in it. `within` has the time by level."""

    @functools.wraps(step)
    def timed(*given: Any, **named: Any) -> Any:
        began = time.thread_time()
        within.append(0.0)
        try:
            return step(*given, **named)
        finally:
            took = time.thread_time() - began
            spent[label] += took - within.pop()
            within[-1] += took

    return timed


if __name__ == "__main__":
    raise SystemExit(main())

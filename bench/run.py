"""`make bench`: throughput per CPU-second, measured. `python -m bench.run --help` lists the options.

Scenarios are `bench.scenarios.SCENARIOS`; each is run `--runs` times and of each row the median run is shown. Producing
the events is not counted; the topics are kept in `.bench/` for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench.measure import ROOT, Measured
from bench.scenario import Bench, Row, Scenario
from bench.scenarios import SCENARIOS
from bench.workload import PARTITIONS, fill
from orchestration import broker

DIRECTORY = ROOT / ".bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a row misses its aim and `--strict` is given."""
    options = _options().parse_args(arguments)
    chosen = [s for s in SCENARIOS if not options.only or {row.name for row in s.rows} & set(options.only)]
    with_broker = broker.start(DIRECTORY / "broker")
    try:
        topic = fill(with_broker.bootstrap, options.records, _say)
        scratch = DIRECTORY / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        bench = Bench(with_broker.bootstrap, topic, options.records, scratch)
        found = {row.name: m for scenario in chosen for row, m in _medians(scenario, bench, options.runs)}
    finally:
        broker.stop(DIRECTORY / "broker")
    rows = [row for scenario in chosen for row in scenario.rows]
    (_print_json if options.json else _print_table)(rows, found, options)
    missed = [row for row in rows if row.aim and (ratio := _ratio(row, found)) is not None and ratio < row.aim]
    return 1 if missed and options.strict else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Throughput per CPU-second.")
    parser.add_argument("--records", type=int, default=4_000_000, metavar="N", help="events in the topic (4,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")
    names = [row.name for scenario in SCENARIOS for row in scenario.rows]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a row misses its aim")
    return parser


def _medians(scenario: Scenario, bench: Bench, runs: int) -> Iterator[tuple[Row, Measured]]:
    """Of each row the run with the median CPU time (of an even number the slower of the two in the middle)."""
    done: list[Sequence[Measured]] = []
    for number in range(1, runs + 1):
        done.append(scenario.run(bench))
        for row, m in zip(scenario.rows, done[-1], strict=True):
            _say(f"{row.name} {number}/{runs}: {_figures(m)}")
    for row, measured in zip(scenario.rows, zip(*done, strict=True), strict=True):
        middle = statistics.median_high(m.cpu_s for m in measured)
        yield row, next(m for m in measured if m.cpu_s == middle)


def _figures(m: Measured) -> str:
    return f"{m.records_per_cpu_s:,.0f} records per CPU-second ({m.cpu_s:.1f} CPU-s, {m.wall_s:.1f} s)"


def _print_table(rows: list[Row], found: Mapping[str, Measured], options: argparse.Namespace) -> None:
    print(
        f"\n{_machine()}; a topic of {options.records:,} events, {PARTITIONS} partitions; medians of {options.runs}\n"
    )
    print("| | records per CPU-second | ratio | aim | records per second | CPU-s | s |")
    print("|---" + 6 * "|---:" + "|")
    for row in rows:
        m, ratio = found[row.name], _ratio(row, found)
        shown = f"{ratio:.2f} × {row.peer}" if ratio else ""
        figures = f"{m.records_per_cpu_s:,.0f} | {shown} | {row.aim or ''} | {m.records / m.wall_s:,.0f}"
        print(f"| {row.name}: {row.what} | {figures} | {m.cpu_s:.1f} | {m.wall_s:.1f} |")


def _ratio(row: Row, found: Mapping[str, Measured]) -> float | None:
    """Records per CPU-second in those of the row's peer, if that was measured as well."""
    peer = found.get(row.peer)
    return found[row.name].records_per_cpu_s / peer.records_per_cpu_s if peer else None


def _print_json(rows: list[Row], found: Mapping[str, Measured], options: argparse.Namespace) -> None:
    shown: dict[str, Any] = {
        row.name: {
            "what": row.what,
            "peer": row.peer or None,
            "ratio_to_peer": _ratio(row, found),
            "aim": row.aim,
            "records_per_cpu_s": round(found[row.name].records_per_cpu_s),
            **asdict(found[row.name]),
        }
        for row in rows
    }
    print(json.dumps({"machine": _machine(), "events": options.records, "runs": options.runs, "rows": shown}, indent=2))


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, Python {platform.python_version()}"


def _processor() -> str:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return models[0].partition(": ")[2] if models else platform.machine()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`make bench`: throughput per CPU-second, measured. `python -m bench.run --help` lists the options.

Rows are `bench.scenarios.SCENARIOS`; each is run `--runs` times and the median run is shown. Producing the events is
not counted; the topic is kept in `.bench/` for the next time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench.measure import ROOT, Measured
from bench.scenario import Bench, Scenario
from bench.scenarios import SCENARIOS
from bench.workload import EVENT_BYTES, PARTITIONS, fill
from orchestration import broker

DIRECTORY = ROOT / ".bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a row misses its aim and `--strict` is given."""
    options = _options().parse_args(arguments)
    chosen = [scenario for scenario in SCENARIOS if scenario.name in (options.only or [s.name for s in SCENARIOS])]
    with_broker = broker.start(DIRECTORY / "broker")
    try:
        topic = fill(with_broker.bootstrap, options.records, _say)
        scratch = DIRECTORY / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        bench = Bench(with_broker.bootstrap, topic, options.records, scratch)
        rows = {scenario.name: _median(scenario, bench, options.runs) for scenario in chosen}
    finally:
        broker.stop(DIRECTORY / "broker")
    (_print_json if options.json else _print_table)(chosen, rows, options)
    missed = [s.name for s in chosen if s.aim and rows[s.name].records_per_cpu_s < s.aim]
    return 1 if missed and options.strict else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Throughput per CPU-second.")
    parser.add_argument("--records", type=int, default=4_000_000, metavar="N", help="events in the topic (4,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a row misses its aim")
    return parser


def _median(scenario: Scenario, bench: Bench, runs: int) -> Measured:
    """The run with the median CPU time (of an even number the slower of the two in the middle)."""
    done: list[Measured] = []
    for number in range(1, runs + 1):
        done.append(scenario.run(bench))
        _say(f"{scenario.name} {number}/{runs}: {_figures(done[-1])}")
    middle = statistics.median_high(m.cpu_s for m in done)
    return next(m for m in done if m.cpu_s == middle)


def _figures(m: Measured) -> str:
    return f"{m.records_per_cpu_s:,.0f} records per CPU-second ({m.cpu_s:.1f} CPU-s, {m.wall_s:.1f} s)"


def _print_table(chosen: list[Scenario], rows: dict[str, Measured], options: argparse.Namespace) -> None:
    what = f"{options.records:,} JSON events of {EVENT_BYTES} bytes with 10 fields, {PARTITIONS} partitions"
    print(f"\n{_machine()}; {what}; median of {options.runs}\n")
    print("| | records per CPU-second | aim | of the peer | CPU-s | wall s |\n|---|---:|---:|---:|---:|---:|")
    for scenario in chosen:
        m, aim, ratio = rows[scenario.name], f"{scenario.aim:,}" if scenario.aim else "", _ratio(scenario, rows)
        of_peer = f"{ratio:.1f}×" if ratio else ""
        print(f"| {scenario.what} | {m.records_per_cpu_s:,.0f} | {aim} | {of_peer} | {m.cpu_s:.1f} | {m.wall_s:.1f} |")


def _ratio(scenario: Scenario, rows: dict[str, Measured]) -> float | None:
    """Records per CPU-second in those of the row's peer, if that was measured as well."""
    peer = rows.get(scenario.peer)
    return rows[scenario.name].records_per_cpu_s / peer.records_per_cpu_s if peer else None


def _print_json(chosen: list[Scenario], rows: dict[str, Measured], options: argparse.Namespace) -> None:
    found: dict[str, Any] = {
        scenario.name: {
            "what": scenario.what,
            "aim": scenario.aim,
            "records_per_cpu_s": round(rows[scenario.name].records_per_cpu_s),
            "ratio_to_peer": _ratio(scenario, rows),
            **asdict(rows[scenario.name]),
        }
        for scenario in chosen
    }
    print(json.dumps({"machine": _machine(), "events": options.records, "runs": options.runs, "rows": found}, indent=2))


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

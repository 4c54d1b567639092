"""Throughput per CPU-second, beside iceberg-kafka-connect: `python -m bench.throughput`.

Scenarios are `bench.scenarios.SCENARIOS`, run one after the other, `--runs` times all of them: a machine that is slower
for a while is so for what is compared. Of each row the median run is shown. Producing the events is not counted; the
topics are kept in `.bench/broker` for the next time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import partial

from bench.figure import Figure
from bench.measure import Measured
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.scenario import Bench, Scenario
from bench.scenarios import SCENARIOS
from bench.workload import fill

ROWS = [row.name for scenario in SCENARIOS for row in scenario.rows]


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    topic = fill(place.bootstrap, options.records)
    bench = Bench(place.bootstrap, topic, options.records, place.scratch)
    chosen = [scenario for scenario in SCENARIOS if {row.name for row in scenario.rows} & set(options.rows or ROWS)]
    done: list[tuple[Scenario, list[Sequence[Measured]]]] = [(scenario, []) for scenario in chosen]
    for number in range(1, options.runs + 1):
        for scenario, runs in done:
            yield Step(f"{_names(scenario)} {number}/{options.runs}", partial(_run, scenario, bench, runs))
    for scenario, runs in done:
        yield Step(f"{_names(scenario)}: medians", partial(_medians, scenario, runs))


def _names(scenario: Scenario) -> str:
    return ", ".join(row.name for row in scenario.rows)


def _run(scenario: Scenario, bench: Bench, done: list[Sequence[Measured]]) -> Sequence[Figure]:
    """One more run, whose figures the medians are of."""
    done.append(scenario.run(bench))
    for row, m in zip(scenario.rows, done[-1], strict=True):
        figures = f"{m.records_per_cpu_s:,.0f} records per CPU-second ({m.cpu_s:.1f} CPU-s, {m.wall_s:.1f} s)"
        say(f"  {row.name}: {figures}")
    return ()


def _medians(scenario: Scenario, done: Sequence[Sequence[Measured]]) -> Iterator[Figure]:
    """Of each row the run with the median rate, of an even number the slower of the two in the middle; none if no run
    came to its end.
    """
    if not done:
        return
    for row, measured in zip(scenario.rows, zip(*done, strict=True), strict=True):
        middle = statistics.median_low(m.records_per_cpu_s for m in measured)
        yield row.figure(next(m for m in measured if m.records_per_cpu_s == middle))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=2_000_000, metavar="N", help="events in the topic (2,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")
    parser.add_argument(
        "--only", dest="rows", action="append", choices=ROWS, metavar="ROW", help=f"one of {', '.join(ROWS)}"
    )


PART = Part(
    "throughput",
    "Records per CPU-second, beside iceberg-kafka-connect.",
    _options,
    _steps,
    smoke="--records 40000 --runs 1",
    keeps_topics=True,
)

if __name__ == "__main__":
    sys.exit(alone(PART))

"""Records per CPU-second into a Hudi table, beside Hudi's own writer on Spark: `python -m bench.hudi`."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path

import yaml

from bench import hudi_writer
from bench.figure import Figure
from bench.measure import Measured, measured
from bench.part import Part, Place, Step, alone
from bench.progress import say
from bench.proof import prove
from bench.scenario import Bench, Row
from bench.workload import fill, write_pipeline
from calve.sink_core.config.load import load

WRITER = Row("hudi-writer", "Hudi's writer on Spark 3.5, bulk_insert, from its start")
CALVE = Row("hudi", "calve run into a Hudi table, from its start", "hudi-writer", 4)


def into_hudi(bench: Bench, folder: Path) -> Measured:
    """`calve run` from its start to its end."""
    file = write_pipeline(folder / "pipeline", bench.bootstrap, bench.topic)
    pipeline = yaml.safe_load(file.read_text())
    pipeline["hudi"] = {"warehouse": str(folder / "hudi")}
    pipeline["tables"][0]["format"] = "hudi"
    file.write_text(yaml.safe_dump(pipeline, sort_keys=False))
    calve = Path(sys.executable).parent / "calve"
    run = measured([str(calve), "run", str(file), "--json"], bench.records)
    prove(load(file))
    return run


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    topic = fill(place.bootstrap, options.records)
    bench = Bench(place.bootstrap, topic, options.records, place.scratch)
    for row, run in ((WRITER, hudi_writer.write), (CALVE, into_hudi)):
        yield Step(row.name, partial(_median, row, run, bench, options.runs))


def _median(row: Row, run: Callable[[Bench, Path], Measured], bench: Bench, runs: int) -> Iterator[Figure]:
    done: list[Measured] = []
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory(dir=bench.directory) as scratch:
            done.append(m := run(bench, Path(scratch)))
        say(f"  {row.name} {number}/{runs}: {m.records_per_cpu_s:,.0f} records per CPU-second ({m.cpu_s:.1f} CPU-s)")
    middle = statistics.median_low(m.records_per_cpu_s for m in done)
    yield row.figure(next(m for m in done if m.records_per_cpu_s == middle))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=2_000_000, metavar="N", help="events in the topic (2,000,000)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs of each row, the median counts (3)")


PART = Part(
    "hudi",
    "Records per CPU-second into a Hudi table, beside Hudi's own writer.",
    _options,
    _steps,
    smoke="--records 20000 --runs 1",
    keeps_topics=True,
)

if __name__ == "__main__":
    sys.exit(alone(PART))

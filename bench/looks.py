"""What `status` and `verify` make of many batches: `python -m bench.looks`.

Batches of one record each, with a file of the ledger, a data file and two manifests for every one: as they were
published, and when maintenance has joined them. Each look is of a process that does nothing else. Wall seconds, medians
of `--runs` looks.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

from bench.batches import publish
from bench.coordinator import flow_of, send
from bench.figure import Aim, Figure
from bench.looking import looked
from bench.part import Part, Place, Step, alone
from tests.pipelines import Flow

CALVE = str(Path(sys.executable).with_name("calve"))
JOINING = {
    "manifests": {"cron": "0 * * * *"},
    "compact": {"cron": "0 * * * *", "lag": "0s"},
}
"""Manifests first: on local disks Hadoop starts a process for each file it writes, and `compact` writes each manifest
in which it replaces a file."""
MANY = 10_000
AIM = Aim(10.0, at_most=True)
"""Of as many batches, in seconds."""


def _steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
    for size in options.batches:
        yield Step(f"{size:,} batches", partial(_figures, place, size, options.runs))


def _figures(place: Place, size: int, runs: int) -> Iterator[Figure]:
    flow, commit_s = published(flow_of(place, extra={"maintenance": JOINING}), size)
    yield from _looks(flow, size, runs, "apart", "that nothing has joined", commit_s)
    for task in JOINING:
        command = [CALVE, "maintain", str(flow.pipeline.path), task]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    yield from _looks(flow, size, runs, "joined", "joined by `calve maintain`", commit_s)


def _looks(flow: Flow, size: int, runs: int, how: str, said: str, commit_s: float) -> Iterator[Figure]:
    aim = AIM if size >= MANY else None
    for look in ("status", "verify"):
        found = [looked(look, flow.pipeline.path) for _run in range(runs)]
        seconds, memory = (statistics.median(each[what] for each in found) for what in ("s", "memory_mib"))
        more = {"s commit": round(commit_s, 3), "MiB": round(memory)} if look == "verify" else {}
        what = f"`{look}` of {size:,} batches {said}"
        yield Figure(f"{how}-{look}-{size}", what, round(seconds, 3), "s", aim, more=more)


def published(flow: Flow, size: int) -> tuple[Flow, float]:
    """The pipeline with so many batches, of which the first one created the tables; seconds that the commit took."""
    send(flow, [0])
    flow.run()
    send(flow, range(1, size))
    with flow.session() as session:
        session.bind()
        publish(session, flow.table, 1, size)
        began = time.perf_counter()
        session.coordinator().commit(after_publish=True).raise_failures()
        return flow, time.perf_counter() - began


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="looks of each kind, the medians count (3)")
    parser.add_argument("--batches", type=int, nargs="*", default=[MANY], metavar="N", help=f"batches [{MANY}]")


PART = Part("looks", "`status` and `verify` of many batches.", _options, _steps, smoke="--runs 1 --batches 3")

if __name__ == "__main__":
    sys.exit(alone(PART))

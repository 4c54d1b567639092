"""A pipeline under load and faults for as long as you like: `python -m tests.soak` (or `make soak`).

A producer sends events with ids of their own at a steady rate. `calve run` processes follow one another on a Spark
Connect server, tasks of maintenance run beside them, and another writer appends to the same table and compacts it.
Every 20 to 60 seconds one of Calve's processes is killed; half way the broker is. Events are sent until the last fault
has healed. At the end everything is committed, `calve verify --deep` has to prove it, and Spark counts the ids in the
table.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.soak.report import document, fault_table, trend_table
from tests.soak.soak import Found, Plan, soak


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak and print; 1 if a record is lost or there twice, or a process ended as it should not."""
    options = _options().parse_args(arguments)
    # Whoever is asked to end still ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    directory = Path(tempfile.mkdtemp(prefix="calve-soak-"))
    plan = Plan(
        minutes=options.minutes,
        per_second=options.rate,
        kill_every_s=(options.kill_every / 2, options.kill_every * 1.5),
        chance=random.Random(options.seed),
    )
    try:
        found = soak(directory, plan, _say)
    finally:
        if options.keep:
            _say(f"everything is in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        everything = document(found.healed, found.trends, found.count)
        print(json.dumps({**everything, "ends": found.ends, "failures": found.failures}, indent=2))
    else:
        _print(found, options)
    return int(bool(found.failures) or not found.count.right)


def _print(found: Found, options: argparse.Namespace) -> None:
    count = found.count
    print(f"\n{options.minutes:g} minutes of faults, {options.rate:,} events a second, seed {options.seed}\n")
    print(f"{fault_table(found.healed, count)}\n")
    print(f"{trend_table(found.trends)}\n")
    print(f"{count.sent:,} events sent, {count.lost:,} lost, {count.twice:,} twice; ", end="")
    print("`calve verify --deep` proves it" if count.proven else "`calve verify --deep` FAILS")
    print(f"{count.foreign_sent:,} rows of the other writer, {count.foreign_lost} lost, {count.foreign_twice} twice")
    print(f"ends by exit code: {', '.join(f'{end}: {n}' for end, n in sorted(found.ends.items()))}")
    for failure in found.failures:
        print(f"FAILED: {failure}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="A pipeline under load and faults.")
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="how long there are faults (30)")
    parser.add_argument("--rate", type=int, default=10_000, metavar="N", help="events a second (10,000)")
    parser.add_argument(
        "--kill-every", type=float, default=40.0, metavar="S", help="mean seconds to the next kill (40)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the moments (1)")
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the tables")
    parser.add_argument("--keep", action="store_true", help="leave logs, tables and topics where they are")
    return parser


if __name__ == "__main__":
    sys.exit(main())

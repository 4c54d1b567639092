"""The demo of Hudi tables: flights into Iceberg and Hudi, a run that is killed in Hudi's commit, and the proof.

Everything it makes is in `.demo/hudi` (or `CALVE_DEMO_DIR`). It starts the embedded broker there, and stops it at the
end; the data stays: `python -m examples.hudi.demo`.
"""

# ruff: noqa: E402
from __future__ import annotations

import signal

# The imports take a second, in which there is nothing to clean up yet and a traceback would help nobody.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import os
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from calve import CalveError
from examples.flights import local, produce
from examples.hudi import readers

PIPELINE = Path("examples/hudi/pipeline.yaml")
KILLED_AT = "hudi.in-lock=kill@3"
"""In the second batch, with the table's lock and Hudi's own: all but the completion is done."""
KILLED = -signal.SIGKILL
CONSOLE = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def main() -> int:
    options = _options()
    local.interruptible()
    directory = Path(os.environ.get("CALVE_DEMO_DIR") or local.ROOT / ".demo" / "hudi").absolute()
    try:
        with (
            local.alone(directory),
            local.running_broker(directory / "broker") as bootstrap,
            local.warm_spark(CONSOLE, PIPELINE),
        ):
            return _demo(bootstrap, options.limit, directory)
    except CalveError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code


def _demo(bootstrap: str, limit: int, directory: Path) -> int:
    """Fill the topic, kill a run and go on, prove, compare. Returns the exit code."""
    _say(f"Kafka, the lake and Hudi's warehouse are in {directory}")
    if count := produce.fill(bootstrap, limit):
        _say(f"{count:,} events produced, {len(produce.BROKEN)} of them broken")
        _say("a run that is killed in its second batch, in Hudi's lock, before Hudi completes the commit:")
        code = _calve("run", CALVE_FAILPOINT=KILLED_AT)
        if code != KILLED:
            _say(f"the run was to be killed, and ended with {code}")
            return code or 1
        _say("killed. Another run completes what is published, under the same instant, and goes on:")
    else:
        _say("the topic is filled already")
    if code := _calve("run") or _calve("status") or _calve("verify", "--deep"):
        return code
    if code := _compared(bootstrap, directory):
        return code
    local.how_to_go_on(CONSOLE, PIPELINE, [directory / "broker"], ["CALVE_DEMO_DIR", "CALVE_DEMO_BOOTSTRAP"])
    return 0


def _compared(bootstrap: str, directory: Path) -> int:
    """Show what readers find that know nothing of Calve; the exit code."""
    flights: Counter[str] = Counter()
    last: dict[readers.Flight, datetime] = {}
    for flight in readers.flights_in_kafka(bootstrap, produce.TOPIC):
        flights[flight["carrier"]] += 1
        number, hour = (flight["carrier"], flight["flight"]), datetime.fromisoformat(flight["time_hour"])
        last[number] = max(hour, last.get(number, hour))
    iceberg = readers.carriers(readers.iceberg(directory, "air.flights"))
    hudi = readers.carriers(readers.hudi(directory, "air.flights_hudi"))
    table = Table("carrier", *("records in Kafka", "rows by pyiceberg", "rows by hudi-rs"))
    for carrier in sorted(flights):
        table.add_row(carrier, *(f"{of[carrier]:,}" for of in (flights, iceberg, hudi)))
    CONSOLE.print(table)
    if not flights == iceberg == hudi or readers.last_hours(readers.hudi(directory, "air.last_flights")) != last:
        _say("they are not equal")
        return 1
    _say(f"equal: {flights.total():,} flights in both tables, and the last one of each of {len(last):,} flight numbers")
    return 0


def _calve(command: str, *options: str, **environment: str) -> int:
    return local.calve(CONSOLE, command, str(PIPELINE), *options, **environment)


def _say(sentence: str) -> None:
    local.say(CONSOLE, sentence)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=100_000, help="flights (100,000; there are 336,776)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""The demo: real flights from Kafka into Iceberg through the `calve` command, and the proof that all are there once.

Everything it makes is in `.demo/` (or `CALVE_DEMO_DIR`). It starts the embedded broker there if none runs, and stops it
at the end; the data stays, and a second run goes on from it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import produce
import show
from pyiceberg.catalog import Catalog

from orchestration import broker
from sink_core.commit.properties import SummaryKeys
from sink_core.config.effective import Pipeline
from sink_core.config.load import load
from sink_core.errors import CalveError
from sink_core.tables.catalog import open_catalog
from sink_core.tables.create import load_if_there

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = Path("examples/flights/pipeline.yaml")
FLIGHTS = "air.flights"
CONSOLE = show.console()


def main() -> int:
    options = _options()
    # As an exception, so that the broker is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(os.environ.get("CALVE_DEMO_DIR") or ROOT / ".demo").absolute()
    try:
        with _broker(directory / "broker") as bootstrap:
            os.environ |= {"CALVE_DEMO_DIR": str(directory), "CALVE_DEMO_BOOTSTRAP": bootstrap}
            return _demo(options.limit)
    except CalveError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _demo(limit: int | None) -> int:
    """Fill the topic, run the pipeline, show what it made, prove it. Returns the exit code."""
    produced = produce.fill(os.environ["CALVE_DEMO_BOOTSTRAP"], limit)
    _say(f"{produced:,} events produced" if produced else "the topic is filled already, nothing produced")
    pipeline = load(ROOT / PIPELINE)
    with open_catalog(pipeline.catalog) as catalog:
        before = show.total_rows(load_if_there(catalog, FLIGHTS))
        if code := _calve("run", str(PIPELINE)):
            return code
        _show(pipeline, catalog)
        _say(_growth(before, show.total_rows(catalog.load_table(FLIGHTS))))
    code = _calve("verify", str(PIPELINE), "--deep") or _calve("status", str(PIPELINE))
    _how_to_go_on()
    return code


def _show(pipeline: Pipeline, catalog: Catalog) -> None:
    flights = catalog.load_table(FLIGHTS)
    keys = SummaryKeys(pipeline.name, pipeline.control_topic, pipeline.group)
    for table in (
        show.rows_by_month(flights),
        show.snapshots(flights, keys),
        show.delays(flights, produce.airlines()),
        show.dead_letters(catalog.load_table(pipeline.dead_letter_table)),
        show.ledger(catalog.load_table(pipeline.ledger_table)),
    ):
        CONSOLE.print(table)


def _growth(before: int, after: int) -> str:
    if after == before:
        return f"{FLIGHTS} had {before:,} rows before this run and has {after:,} now: nothing was added twice"
    return f"{FLIGHTS} had {before:,} rows before this run and has {after:,} now"


def _calve(*arguments: str) -> int:
    """Run the command line as a user would, and return its exit code."""
    CONSOLE.print(f"\n[bold]$ calve {shlex.join(arguments)}[/bold]")
    command = [str(Path(sys.executable).with_name("calve")), *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own command


@contextmanager
def _broker(directory: Path) -> Generator[str]:
    """The broker's address. It is stopped afterwards unless it ran before."""
    found = broker.status(directory)
    _say(f"{'found' if found else 'starting'} the broker in {directory}")
    try:
        yield broker.start(directory, heap_mb=512).bootstrap
    finally:
        if not found:
            broker.stop(directory)


def _how_to_go_on() -> None:
    directory = os.environ["CALVE_DEMO_DIR"]
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

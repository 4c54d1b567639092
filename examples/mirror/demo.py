"""The demo of a mirror: two clusters, a run that is killed in the middle, and the proof that the copy is exact.

Everything it makes is in `.demo/mirror` (or `CALVE_DEMO_DIR`). It starts both brokers there, and stops them at the end;
the data stays, and a second run goes on from it: `python -m examples.mirror.demo`.
"""

# ruff: noqa: E402
from __future__ import annotations

import signal

# The imports take a second, in which there is nothing to clean up yet and a traceback would help nobody.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from calve import CalveError
from calve.orchestration.local import broker
from calve.sink_core.errors import EXIT_UNREACHABLE
from examples.flights import local
from examples.mirror import compare, produce

PIPELINE = Path("examples/mirror/pipeline.yaml")
CLUSTERS = {"eu": "CALVE_DEMO_EU", "us": "CALVE_DEMO_US"}
"""And the variables by which connections.yaml finds them."""
KILLED_AT = "transaction.after-offsets=kill@2"
"""In each task of a run: its second transaction has its records and positions, and lacks only its end."""
HEAP_MB = 384
CONSOLE = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def main() -> int:
    options = _options()
    local.interruptible()
    directory = Path(os.environ.get("CALVE_DEMO_DIR") or local.ROOT / ".demo" / "mirror").absolute()
    try:
        with (
            local.alone(directory),
            _clusters(directory) as (eu, us),
            local.warm_spark(CONSOLE, PIPELINE),
        ):
            return _demo(eu, us, options.records, directory)
    except CalveError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code


def _demo(eu: str, us: str, records: int, directory: Path) -> int:
    """Fill `eu`, copy, grow, kill a copy and go on, compare. Returns the exit code."""
    _say(f"two clusters, eu at {eu} and us at {us}; both are in {directory}")
    if produce.create_topics(eu):
        _say(_produced(produce.fill(eu, records)))
    else:
        _say("the topics are there already: they get new records below")
    if code := _calve("run"):
        return code
    partitions = produce.add_partition(eu)
    _say(f"{produce.GROWING} has {partitions} partitions now; {_produced(produce.fill(eu, records // 2))}")
    _say("a run whose tasks are killed in their second transaction, between its last write and its commit:")
    code = _calve("run", CALVE_FAILPOINT=KILLED_AT)
    if code != EXIT_UNREACHABLE:
        _say(f"tasks of the run were to be killed, and it ended with {code}")
        return code or 1
    pairs = compare.compare(eu, us, produce.TOPICS, "eu")
    some = sum(pair.remote.records for pair in pairs if pair.remote)
    of = sum(pair.source.records for pair in pairs)
    _say(f"killed. A consumer of us sees {some:,} of {of:,} records: first transactions, and nothing of the second")
    _say("another run finds out what became of all, and goes on behind the first ones:")
    if code := _calve("run"):
        return code
    pairs = compare.compare(eu, us, produce.TOPICS, "eu")
    CONSOLE.print(compare.shown(pairs))
    if code := _verdict(pairs):
        return code
    local.how_to_go_on(CONSOLE, PIPELINE, [directory / cluster for cluster in CLUSTERS], CLUSTERS.values())
    return 0


def _verdict(pairs: list[compare.Pair]) -> int:
    """Say whether all is equal; the exit code."""
    wrong = [pair for pair in pairs if not pair.equal]
    if wrong:
        _say(f"{len(wrong)} of {len(pairs)} partitions are not equal")
        return 1
    copied = sum(pair.source.records for pair in pairs)
    _say(f"proven: {copied:,} records in {len(pairs)} partitions, each there once, in its order, byte for byte")
    return 0


def _produced(produced: produce.Produced) -> str:
    return f"{produced.committed:,} records produced, and {produced.aborted:,} in transactions that were aborted"


@contextmanager
def _clusters(directory: Path) -> Generator[tuple[str, str]]:
    """The addresses of both, which are also in the environment. Those that did not run before are stopped afterwards.

    Raises ConfigError and Unreachable as `broker.start` does.
    """
    started = [directory / cluster for cluster in CLUSTERS if not broker.status(directory / cluster)]
    try:
        for cluster, variable in CLUSTERS.items():
            os.environ[variable] = broker.start(directory / cluster, heap_mb=HEAP_MB).bootstrap
        yield os.environ[CLUSTERS["eu"]], os.environ[CLUSTERS["us"]]
    finally:
        for folder in started:
            broker.stop(folder, timeout=local.BROKER_ENDS_WITHIN_S)


def _calve(command: str, **environment: str) -> int:
    return local.calve(CONSOLE, command, str(PIPELINE), **environment)


def _say(sentence: str) -> None:
    local.say(CONSOLE, sentence)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000, help="records at first, half as many later (100,000)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

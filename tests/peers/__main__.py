"""The same faults on iceberg-kafka-connect 1.12.0 and on Calve: `python -m tests.peers` (or `make side-by-side`).

Each scenario has a topic, a table and a catalog of its own for each peer; what it lost and what it has twice is counted
in the table at the end. Calve runs as `calve` processes whose tasks are on a Spark Connect server, the connector in a
standalone worker of Kafka Connect. Its jars are fetched from Maven Central on first use.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaException

from calve.orchestration.local import broker
from tests.e2e.faults.spark_server import ConnectServer, serving
from tests.peers.calve import Calve
from tests.peers.connector import Connector
from tests.peers.outcome import Outcome, document, table
from tests.peers.peer import Peer
from tests.peers.scenarios import SCENARIOS, Scenario, Stage

START_S = 300.0
PEERS = ("connector", "calve")


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print; 1 if Calve lost something or has something twice."""
    options = _options().parse_args(arguments)
    # Whoever is asked to end still ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    chosen = [s for s in SCENARIOS if not options.only or s.name in options.only]
    directory = Path(tempfile.mkdtemp(prefix="calve-peers-"))
    outcomes: list[Outcome] = []
    with ExitStack() as opened:
        opened.callback(_clean_up, directory, keep=options.keep)
        opened.callback(broker.stop, directory / "broker")
        started = broker.start(directory / "broker", timeout=START_S)
        # Started by whoever needs it first.
        server = cache(lambda: opened.enter_context(serving(directory / "spark")))
        make = _makers(started.bootstrap, directory / "peers", server)
        for scenario in chosen:
            for peer in options.peer or PEERS:
                stage = Stage(random.Random(options.seed), lambda: server().address)
                outcomes.append(_play(scenario, make[peer](), stage))
    print(json.dumps(document(outcomes), indent=2) if options.json else table(outcomes, _what()))
    return int(any(not outcome.right for outcome in outcomes if outcome.peer == Calve.name))


def _makers(bootstrap: str, directory: Path, server: Callable[[], ConnectServer]) -> dict[str, Callable[[], Peer]]:
    return {
        "connector": lambda: Connector(bootstrap, directory),
        "calve": lambda: Calve(bootstrap, directory, server()),
    }


def _play(scenario: Scenario, peer: Peer, stage: Stage) -> Outcome:
    began = time.monotonic()
    _say(f"{scenario.name}, {peer.name}")
    try:
        scenario.play(peer, stage)
        peer.rest()
        outcome = peer.outcome(scenario.name)
        if outcome.right and isinstance(peer, Calve):
            peer.prove()
    except (AssertionError, TimeoutError, KafkaException) as error:
        # The others are still worth to be played.
        _say("".join(traceback.format_exception(error)))
        outcome = Outcome(scenario.name, peer.name, peer.produced, failed=str(error).partition("\n")[0])
    finally:
        peer.rest()
    _say(f"{outcome} ({time.monotonic() - began:.0f} s)")
    return outcome


def _clean_up(directory: Path, *, keep: bool) -> None:
    if keep:
        _say(f"everything is in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _what() -> dict[str, str]:
    return {scenario.name: scenario.what for scenario in SCENARIOS}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description="The same faults on each peer.")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--only", action="append", choices=names, metavar="SCENARIO", help=f"of {', '.join(names)}")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the random moments (1)")
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the table")
    parser.add_argument("--keep", action="store_true", help="leave logs, tables and topics where they are")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Calve in Dagster, live: flights that keep coming, their pipeline, and the UI. Ctrl-C ends all of it.

Everything is kept in `.demo/` (or `CALVE_DEMO_DIR`), which `make demo` uses as well. The embedded broker is started
there if none runs; the topic is filled once, then flights are sent at a steady rate, the year over and over again.
"""

# ruff: noqa: E402
from __future__ import annotations

import signal

# The imports take a second or two, in which there is nothing to clean up yet and a traceback would help nobody.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import local
import produce
import show
from confluent_kafka import Producer
from dagster import DagsterInstance

from calve.orchestration.dagster.common.moving import MOVED_TAG
from calve.orchestration.dagster.common.names import WHY_TAG
from calve.orchestration.local import broker
from calve.sink_core.errors import CalveError, Unreachable
from calve.sink_core.kafka.clients import LOGGER
from calve.spark_jobs import warm

HOST = "127.0.0.1"
PORT = 3000
ANSWERS_WITHIN_S = 120.0
LOOK_EVERY_S = 1.0
SEND_EVERY_S = 0.1
CONSOLE = show.console()


def main() -> int:
    options = _options()
    local.interruptible()
    directory = local.folder()
    try:
        with local.alone(directory):
            _say(f"starting Kafka and Dagster in {directory}")
            _dev(directory, options)
    except local.Interrupted:
        _say("all is stopped; the data stays")
    except CalveError as error:
        print(f"dev: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _dev(directory: Path, options: argparse.Namespace) -> None:
    """Run everything until a signal ends it. Raises Interrupted, or Unreachable if a part ended by itself."""
    with (
        local.running_broker(directory / "broker") as bootstrap,
        local.opened_instance(directory / "dagster") as instance,
    ):
        if produced := produce.fill(bootstrap, options.limit):
            _say(f"{produced:,} events produced")
        with _dagster(instance, _free_port(options.port)) as services, _flights(bootstrap, options.per_second):
            _say(f"{options.per_second:g} flights a second are being sent; Ctrl-C ends everything")
            told = {run.run_id for run in instance.get_runs() if run.is_finished}
            while not local.ASKED.wait(LOOK_EVERY_S):
                _check(directory, services)
                for line in _ended(instance, told):
                    CONSOLE.print(f"  {line}", markup=False, soft_wrap=True)


@contextmanager
def _dagster(instance: DagsterInstance, port: int) -> Generator[subprocess.Popen[bytes]]:
    """Webserver, daemon and one code server for both; gone afterwards, the runs too. Raises Unreachable."""
    command = [str(local.BIN / "dg"), "dev", "-w", "workspace.yaml", "-h", HOST, "-p", str(port)]
    with _log(Path(instance.root_directory)).open("wb") as log:
        services = subprocess.Popen(  # noqa: S603 - our own command
            # Ctrl-C is for us; we end them, in their order.
            command,
            cwd=local.ROOT,
            start_new_session=True,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_until_it_answers(services, f"http://{HOST}:{port}", Path(instance.root_directory))
            yield services
        finally:
            try:
                _say("stopping")
            finally:
                # Also when the terminal is gone.
                _end(services, instance)
                # That Dagster has kept up for its runs.
                warm.stop(Path(instance.root_directory).with_name("spark"), timeout=local.PROCESSES_END_WITHIN_S)


def _end(services: subprocess.Popen[bytes], instance: DagsterInstance) -> None:
    """Daemon and webserver first, so that no more runs are started; their code server waits for those in progress."""
    processes = local.family(services.pid)
    if services.poll() is None:
        services.send_signal(signal.SIGINT)
    local.stop_runs(instance)
    local.end(processes + local.family(services.pid))
    services.wait()


def _wait_until_it_answers(services: subprocess.Popen[bytes], url: str, home: Path) -> None:
    deadline = time.monotonic() + ANSWERS_WITHIN_S
    while not _answers(url):
        if services.poll() is not None or time.monotonic() > deadline:
            raise Unreachable(f"Dagster doesn't answer at {url}", hint=f"see {_log(home)}")
        time.sleep(0.2)
    _say(f"Dagster is at [bold]{url}[/bold] (its log: {_log(home)})")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5):  # noqa: S310 - our own server
            return True
    except OSError:
        return False


def _check(directory: Path, services: subprocess.Popen[bytes]) -> None:
    """Raises Unreachable if a part ended by itself."""
    if services.poll() is not None:
        raise Unreachable("Dagster has ended", hint=f"see {_log(directory / 'dagster')}")
    if broker.status(directory / "broker") is None:
        raise Unreachable("the broker has ended", hint=f"see {directory}/broker/broker.log")


def _ended(instance: DagsterInstance, told: set[str]) -> Iterator[str]:
    """A line for each run that has ended and was not told of."""
    for run in reversed(list(instance.get_runs(limit=10))):
        if run.is_finished and run.run_id not in told:
            told.add(run.run_id)
            yield _line(run)


def _line(run: dg.DagsterRun) -> str:
    assets = ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ()))
    what = run.tags.get(WHY_TAG) or run.tags.get(MOVED_TAG, "")
    # A job that Dagster made up for an asset has no name of use.
    name = assets if run.job_name.startswith("__") else run.job_name
    return f"{name}, run {run.run_id[:8]}: {run.status.value.lower()}" + (f", {what}" if what else "")


@contextmanager
def _flights(bootstrap: str, per_second: float) -> Generator[None]:
    """Flights are sent meanwhile."""
    enough = threading.Event()
    sender = threading.Thread(target=_send, args=(bootstrap, per_second, enough), name="flights", daemon=True)
    sender.start()
    try:
        yield
    finally:
        enough.set()
        sender.join(timeout=3)


def _send(bootstrap: str, per_second: float, enough: threading.Event) -> None:
    """Send flights evenly until it is `enough`."""
    # What can't be sent in time is dropped: it is a stream for show.
    conf = {"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4", "message.timeout.ms": 30_000}
    producer, coming, owed, last = Producer(conf, logger=LOGGER), _for_ever(), 0.0, time.monotonic()
    while not enough.wait(SEND_EVERY_S):
        now = time.monotonic()
        owed, last = min(owed + (now - last) * per_second, max(1.0, per_second)), now
        while owed >= 1:
            owed -= 1
            key, value = next(coming)
            try:
                producer.produce(produce.TOPIC, value, key)
            except BufferError:
                break
        producer.poll(0)
    producer.flush(2)


def _for_ever() -> Iterator[produce.Event]:
    """The year's flights again and again; the broken events would be too large a share of a small batch."""
    while True:
        yield from (event for event in produce.events(None) if event not in produce.BROKEN)


def _free_port(wanted: int) -> int:
    """The first port from `wanted` on that nobody listens on."""
    for port in range(wanted, 65536):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise Unreachable(f"no port from {wanted} on is free", hint="choose another with --port")


def _log(home: Path) -> Path:
    return home / "dev.log"


def _say(sentence: str) -> None:
    CONSOLE.print(f"[bold green]dev[/bold green] {sentence}", soft_wrap=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=PORT, help="where the UI is, or the next free one (%(default)s)")
    parser.add_argument("--per-second", type=float, default=200.0, help="flights to send (%(default)g)", metavar="N")
    parser.add_argument("--limit", type=int, help="fill the topic with only the first N flights", metavar="N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

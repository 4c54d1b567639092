"""The demo of a database: PostgreSQL's changes into Kafka and from there into Iceberg, and the proof that all is there.

Everything it makes is in `.demo/postgres` (or `CALVE_DEMO_DIR`). It starts a PostgreSQL and a broker there, and stops
them at the end; the data stays, and a second run goes on from it: `python -m examples.postgres_to_iceberg.demo`.
"""

# ruff: noqa: E402, S603 - our own commands
from __future__ import annotations

import signal

# The imports take a second, in which there is nothing to clean up yet and a traceback would help nobody.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
from rich.console import Console

from calve import CalveError
from calve.orchestration.local import broker
from calve.sink_core.config.load import load_as
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.detached import free_port
from calve.sink_core.errors import EXIT_UNREACHABLE
from calve.spark_jobs import catalog, session
from examples.flights import local
from examples.postgres_to_iceberg import database

HERE = Path("examples/postgres_to_iceberg")
SOURCE, SINK = HERE / "source.yaml", HERE / "pipeline.yaml"
KILLED_AT = "transaction.after-event=kill"
"""Records, source offsets and the event are written, and the transaction lacks only its end."""
CLIENTS = 4
CONSOLE = Console(highlight=False, width=None if sys.stdout.isatty() else 120)

Row = tuple[int, str, Decimal, str | None, int]


def main() -> int:
    options = _options()
    local.interruptible()
    directory = Path(os.environ.get("CALVE_DEMO_DIR") or local.ROOT / ".demo" / "postgres").absolute()
    try:
        with local.alone(directory), _servers(directory) as dsn, local.warm_spark(CONSOLE, SINK):
            return _demo(dsn, options.transactions)
    except (CalveError, FileNotFoundError, PermissionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CalveError) else 1


def _demo(dsn: str, transactions: int) -> int:
    """Read what is there, then change it while runs read on and one is killed; compare. Returns the exit code."""
    _say(f"a PostgreSQL with {len(_rows(dsn)):,} accounts; first the rows that are there:")
    if code := _calve("run", SOURCE) or _calve("run", SINK):
        return code
    _say(f"pgbench changes them by {CLIENTS} clients: some transactions are rolled back, some keys change")
    with _load(dsn, transactions):
        if code := _calve("run", SOURCE):
            return code
    _say("a run whose task is killed between its last write and its commit:")
    code = _calve("run", SOURCE, CALVE_FAILPOINT=KILLED_AT)
    if code not in (EXIT_UNREACHABLE, 0):
        return code
    _say("another run finds nothing of it, reads the same from PostgreSQL's log, and goes on:")
    if code := _calve("run", SOURCE) or _calve("run", SINK):
        return code
    wanted, found = _rows(dsn), _table()
    if wanted != found:
        _say(f"bank.accounts has {len(found):,} rows, the database {len(wanted):,}: they are not equal")
        return 1
    _say(f"proven: bank.accounts has what the database has, {len(wanted):,} rows, equal in each column")
    _say("and each record of the source is in its topic once, by the control topic:")
    return _calve("verify", SOURCE, "--deep") or _calve("status", SOURCE)


def _rows(dsn: str) -> list[Row]:
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, owner, balance, note, (extract(epoch FROM touched) * 1000000)::bigint FROM accounts")
        return sorted(cursor.fetchall())


def _table() -> list[Row]:
    """By Spark: equality deletes are not every reader's."""
    pipeline = load_as(SinkPipeline, SINK)
    started = session.start(pipeline.spark)
    try:
        catalog.attach(started.session, pipeline.catalog)
        name = f"{pipeline.catalog.name}.bank.accounts"
        rows: list[Any] = (
            started.session.table(name).selectExpr("id", "owner", "balance", "note", "unix_micros(touched)").collect()
        )
        return sorted(tuple(row) for row in rows)
    finally:
        started.stop()


@contextmanager
def _load(dsn: str, transactions: int) -> Generator[None]:
    """pgbench, from now on; it is waited for at the end."""
    command = [database.program("pgbench"), "-n", "-f", str(HERE / "changes.sql"), "-c", str(CLIENTS), "--max-tries=20"]
    process = subprocess.Popen(
        [*command, "-t", str(transactions // CLIENTS), dsn], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield
        process.wait()
    finally:
        process.terminate()


@contextmanager
def _servers(directory: Path) -> Generator[str]:
    """Both of them, which are in the environment; what psql takes for the database."""
    port = free_port()
    with database.running(directory / "postgres", port) as new:
        if new:
            database.run(
                [
                    database.program("psql"),
                    "-q",
                    "-v",
                    "ON_ERROR_STOP=1",
                    "-f",
                    str(local.ROOT / HERE / "schema.sql"),
                    database.dsn(port),
                ]
            )
        started = not broker.status(directory / "broker")
        (directory / "lake").mkdir(exist_ok=True)
        os.environ["CALVE_DEMO_POSTGRES"] = database.url(port)
        os.environ["CALVE_DEMO_LAKE"] = str(directory / "lake")
        try:
            os.environ["CALVE_DEMO_KAFKA"] = broker.start(directory / "broker").bootstrap
            yield database.dsn(port)
        finally:
            if started:
                broker.stop(directory / "broker", timeout=local.BROKER_ENDS_WITHIN_S)


def _calve(command: str, file: Path, *options: str, **environment: str) -> int:
    return local.calve(CONSOLE, command, str(file), *options, **environment)


def _say(sentence: str) -> None:
    local.say(CONSOLE, sentence)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=2_000, help="transactions of pgbench (2,000)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

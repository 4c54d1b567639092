"""Tables by query as a run asks for them, without Kafka: what is planned is read and stored, time after time."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.source_systems import TopicNames
from calve.sink_core.control.status import Blocker
from calve.sink_core.source.base import BadRow, Limits, Record
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.systems import TABLES
from tests import support
from tests.postgres import program

MANY = 1_000_000
_PATIENCE_S = 60.0


class Asking:
    """One source of tables, and the offsets that were stored for it. `bad` and `blockers` are those of all plans."""

    def __init__(self, url: str, *tables: dict[str, Any], topics: str = "{schema}.{table}", **options: Any) -> None:
        given = {"url": url, "topics": TopicNames(topics), "tables": list(tables), **options}
        self.source = OpenedSource(SourceSpec(TABLES, given))
        self.stored = dict[FlatMap, FlatMap]()
        self.bad = list[BadRow]()
        self.blockers = list[Blocker]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.source.close()

    def records(self, most: int = MANY) -> list[Record]:
        """One plan, read and stored."""
        found = list[Record]()
        for work in self.source.plan(self.stored, Limits(most, MANY)):
            for rows in self.source.read(work):
                if isinstance(rows, Blocker):
                    self.blockers.append(rows)
                    continue
                found.extend(rows.records)
                self.bad.extend(rows.bad)
                self.stored[work.partition] = rows.offset
        return found

    def rows(self, most: int = MANY) -> list[dict[str, Any]]:
        """The values of `records`."""
        return [json.loads(record.value or b"null") for record in self.records(most)]

    def rows_at_last(self) -> list[dict[str, Any]]:
        """The first that come."""
        found = list[dict[str, Any]]()
        until(lambda: bool(found.extend(self.rows()) or found))
        return found

    def look(self) -> tuple[int, str]:
        """How many rows wait, and what is said of them."""
        seen = self.source.waiting(self.stored)
        return seen.records, seen.what

    def held(self) -> Sequence[Blocker]:
        """What is not read that is there."""
        return self.source.waiting(self.stored).blockers

    def offset(self, table: str) -> dict[str, Any]:
        return dict(self.stored[FlatMap({"table": table})])


@dataclass(frozen=True)
class Shop:
    """A pipeline of tables by query into a broker's topics."""

    broker: Broker
    folder: Path
    url: str

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def of(cls, broker: Broker, url: str, directory: Path) -> Shop:
        (folder := directory / support.unique("shop").replace("-", "_")).mkdir()
        connections = {
            "deployment": "test",
            "kafka": {"here": {"bootstrap.servers": broker.bootstrap}},
            "database": {"shop": {"url": url}},
        }
        (folder / "connections.yaml").write_text(yaml.safe_dump(connections))
        return cls(broker, folder, url)

    def file(self, *tables: dict[str, Any], **config: Any) -> Path:
        """A pipeline's file."""
        written = {
            "name": self.name,
            "kind": "source",
            "source": {"database": "shop", "tables": list(tables)},
            "target": {"kafka": "here", "partitions": 1, "topics": f"{self.name}.{{schema}}.{{table}}"},
            "batch": dict(support.SHORT_CUT),
            **config,
        }
        (self.folder / "source.yaml").write_text(yaml.safe_dump(written))
        return self.folder / "source.yaml"

    def records(self, table: str) -> list[tuple[Any, Any]]:
        """Keys and values of a table's topic."""
        found = support.messages(self.broker.bootstrap, f"{self.name}.{table}")
        return [(json.loads(each.key() or b"null"), json.loads(each.value() or b"null")) for each in found]

    def letters(self) -> list[tuple[dict[str, str], bytes]]:
        """Headers and values of its dead letters."""
        found = support.messages(self.broker.bootstrap, f"{self.name}.dead")
        return [
            ({name: bytes(value or b"").decode() for name, value in each.headers() or ()}, each.value() or b"")
            for each in found
        ]

    def do(self, *statements: str) -> None:
        given(self.url, *statements)


@contextmanager
def stopped(url: str, port: int) -> Generator[str]:
    """A PostgreSQL server without its server, for as long: where its files are."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        data = str(connection.exec_driver_sql("SHOW data_directory").scalar_one())
    engine.dispose()
    control = (program("pg_ctl"), "-D", data, "-w", "-t", f"{_PATIENCE_S:.0f}")
    as_server(*control, "-m", "fast", "stop")
    yield data
    options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={data} -c fsync=off"
    as_server(*control, "-l", f"{data}/log", "-o", options, "start")


def as_server(*command: str) -> None:
    """Run a command as who the server is."""
    who: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=2 * _PATIENCE_S, **who)


def until(holds: Callable[[], bool]) -> None:
    """Ask until it holds."""
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def given(url: str, *statements: str) -> None:
    """Give a database statements, each a transaction of its own."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()

"""A real PostgreSQL with tables of a test's own, and a source that reads its log into topics."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import yaml
from psycopg2.extras import LogicalReplicationConnection

from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.opening import OpenedSource
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import SourceReport, run_source
from calve.sink_core.source.systems import spec_of
from tests import support
from tests.postgres import Postgres

PARTITIONS = 2
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, what text)"


@dataclass(frozen=True)
class Logged:
    """`name` is that of the schema, the publication, the slot and the pipeline."""

    server: Postgres
    bootstrap: str
    directory: Path
    name: str

    @classmethod
    def create(
        cls,
        server: Postgres,
        bootstrap: str,
        directory: Path,
        *sql: str,
        log: Mapping[str, Any] = {},
        tables_by: str = "",
        **target: Any,
    ) -> Logged:
        """With the tables that `sql` makes in its schema, all in the publication; by query if `tables_by` says how."""
        made = cls(server, bootstrap, directory, support.unique("log").replace("-", "_"))
        made.sql(f"CREATE SCHEMA {made.name}", f"SET search_path TO {made.name}", *sql)
        kept = "relkind = 'r' AND relpersistence = 'p' AND relnamespace = %s::regnamespace"
        tables = [name for (name,) in made.ask(f"SELECT relname FROM pg_class WHERE {kept} ORDER BY 1", made.name)]
        by_log = {"log": {"slot": made.name, "publication": made.name, **log}}
        by_query = {"tables": [{"table": f"{made.name}.{table}", "by": tables_by} for table in tables]}
        made.sql(f"CREATE PUBLICATION {made.name} FOR TABLE {', '.join(f'{made.name}.{table}' for table in tables)}")
        config = {
            "name": made.name,
            "kind": "source",
            "source": {"database": "here", **(by_query if tables_by else by_log)},
            "target": {"kafka": "here", "topics": "{schema}.{table}", "partitions": PARTITIONS} | target,
            "dead_letters": {"topic": f"{made.name}.dead"},
            "batch": dict(support.SHORT_CUT),
        }
        connections = {
            "deployment": "test",
            "kafka": {"here": {"bootstrap.servers": bootstrap}},
            "database": {"here": {"url": server.url}},
        }
        (directory / "connections.yaml").write_text(yaml.safe_dump(connections))
        made.file.write_text(yaml.safe_dump(config))
        return made

    @property
    def file(self) -> Path:
        return self.directory / "source.yaml"

    @property
    def pipeline(self) -> SourcePipeline:
        return load_as(SourcePipeline, self.file)

    @property
    def source(self) -> OpenedSource:
        return OpenedSource(spec_of(self.pipeline))

    def run(self) -> SourceReport:
        with SourcePlane(self.pipeline) as plane:
            return run_source(plane)

    @contextmanager
    def session(self) -> Generator[Any]:
        """A cursor that commits each statement, in the schema."""
        with closing(psycopg2.connect(self.server.dsn, options=f"-c search_path={self.name}")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                yield cursor

    @contextmanager
    def streaming(self) -> Generator[int]:
        """Somebody else reads by the slot; the process that serves them."""
        with (
            closing(psycopg2.connect(self.server.dsn, connection_factory=LogicalReplicationConnection)) as connection,
            connection.cursor() as cursor,
        ):
            options = {"proto_version": "1", "publication_names": self.name}
            cursor.start_replication(self.name, options=options, decode=False)
            yield connection.info.backend_pid

    def sql(self, *statements: str) -> None:
        """All in one transaction."""
        with self.session() as cursor:
            cursor.execute("BEGIN; " + "; ".join(statements) + "; COMMIT")

    def ask(self, sql: str, *given: object) -> list[tuple[Any, ...]]:
        with self.session() as cursor:
            cursor.execute(sql, given)
            return cursor.fetchall()

    def records(self, table: str, partitions: int = PARTITIONS) -> list[tuple[Any, Any]]:
        """Key and value of a table's records, each partition's in its order."""
        return [
            (_json(message.key()), _json(message.value()))
            for partition in range(partitions)
            for message in support.messages(self.bootstrap, f"{self.name}.{table}", partition=partition)
        ]

    def offsets(self) -> dict[str, Any]:
        """The source offsets by partition, last ones."""
        found = support.messages(self.bootstrap, self.pipeline.offsets_topic)
        last = {json.loads(m.key() or b"")[1].get("table", "log"): _json(m.value()) for m in found}
        return {of: at for of, at in last.items() if at is not None}

    def confirmed(self) -> str:
        [(lsn,)] = self.ask(
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", self.name
        )
        return lsn

    def there(self, table: str) -> dict[Any, Any]:
        """The rows as the database has them, by id."""
        return {row["id"]: row for (row,) in self.ask(f"SELECT to_jsonb(t) FROM {table} t")}

    def told(self, table: str) -> list[tuple[int, str]]:
        """Ids and operations, sorted."""
        return sorted((at["id"], event["op"]) for at, event in self.records(table) if event is not None)

    def rows(self, table: str, key: str = "id") -> dict[Any, Any]:
        """What a consumer has who puts the events into a table by their key; fails where one does not fit."""
        state = dict[Any, Any]()
        for at, event in self.records(table):
            if event is None:
                continue
            number, op = at[key], event["op"]
            assert (number in state) == (op in "ud"), f"{op} of {number}, which is {state.get(number)}"
            if op == "d":
                del state[number]
            else:
                state[number] = event["after"]
        return state


def _json(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)

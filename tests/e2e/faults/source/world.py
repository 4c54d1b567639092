"""A real PostgreSQL under a load of pgbench, and a source that reads it: which row versions are in Kafka.

Each version of a row has a number of its own, `version`. A trigger writes down what becomes of each in the transaction
that does it; so the account knows what was committed, and nothing else.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.sink_core.config.source_systems import DatabaseSource
from tests import support
from tests.e2e.faults.slots.processes import NONE, Run, Strike, run_to_end
from tests.logged import PARTITIONS, Logged
from tests.postgres import Postgres, program

TABLES = tuple(f"items_{number}" for number in range(7))
CLIENTS = 4

_TABLE = """
CREATE TABLE {table} (id int PRIMARY KEY, version bigint, what text);
ALTER TABLE {table} REPLICA IDENTITY FULL;
CREATE TRIGGER told AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION tell()
"""
_SCHEMA = """
CREATE SEQUENCE versions;
CREATE UNLOGGED TABLE told (place text, op text, version bigint);
CREATE FUNCTION tell() RETURNS trigger AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND (TG_OP = 'DELETE' OR OLD.id <> NEW.id) THEN
        INSERT INTO told VALUES (TG_TABLE_NAME, 'd', OLD.version);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO told VALUES (TG_TABLE_NAME, CASE WHEN TG_OP = 'INSERT' OR OLD.id <> NEW.id THEN 'c' ELSE 'u' END,
                                 NEW.version);
    END IF;
    RETURN NULL;
END $$ LANGUAGE plpgsql;
CREATE FUNCTION change(number int, a int, b int, what int) RETURNS void AS $$
DECLARE place text := 'items_' || number;
BEGIN
    IF what <= 5 THEN
        EXECUTE format('INSERT INTO %I VALUES ($1, nextval(''versions''), repeat(''x'', $2)) '
                       'ON CONFLICT (id) DO UPDATE SET version = nextval(''versions'')', place) USING a, b;
    ELSIF what <= 7 THEN
        EXECUTE format('UPDATE %I SET version = nextval(''versions'') WHERE id BETWEEN $1 AND $1 + 3', place) USING a;
    ELSIF what = 8 THEN
        EXECUTE format('UPDATE %I SET id = $2, version = nextval(''versions'') WHERE id = $1', place) USING a, b;
    ELSE
        EXECUTE format('DELETE FROM %I WHERE id = $1', place) USING a;
    END IF;
EXCEPTION WHEN unique_violation THEN NULL;
END $$ LANGUAGE plpgsql
"""
_LOAD = r"""
\set number random(0, 6)
\set a random(1, 300)
\set b random(1, 300)
\set what random(1, 10)
\set more random(1, 10)
\set pause random(1, 30)
\set end random(1, 10)
BEGIN;
SELECT change(:number, :a, :b, :what);
\if :pause = 1
\sleep 300 ms
\endif
SELECT change(6 - :number, :b, :a, :more);
\if :end = 1
ROLLBACK;
\else
COMMIT;
\endif
"""

Version = tuple[str, str, int]
"""Table, operation, version."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Row versions that the topics lack, or have more than once or although they never were."""

    lost: int
    twice: int

    @property
    def none(self) -> bool:
        return not (self.lost or self.twice)


@dataclass
class SourceWorld:
    """`logged` reads the tables by their log, or in windows of transaction ids: by these only row versions are told
    that are there when they are looked for.
    """

    logged: Logged
    chance: random.Random
    _load: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    @classmethod
    def create(cls, server: Postgres, bootstrap: str, directory: Path, seed: int, **options: Any) -> SourceWorld:
        tables = ";".join(_TABLE.format(table=table) for table in TABLES)
        logged = Logged.create(server, bootstrap, directory, _SCHEMA, tables, **options)
        (directory / "load.sql").write_text(_LOAD)
        return cls(logged, random.Random(seed))

    @property
    def by_log(self) -> bool:
        source = self.logged.pipeline.config.source
        return isinstance(source, DatabaseSource) and source.log is not None

    def produce(self, number: int) -> None:
        """Transactions in the background: it goes on while they are read."""
        self._load_done()
        command = [
            program("pgbench"),
            "-n",
            "-f",
            str(self.logged.directory / "load.sql"),
            "-c",
            str(CLIENTS),
            "-R",
            "150",
        ]
        seed = ["--random-seed", str(self.chance.randrange(2**31)), "--max-tries=20", "-t", str(-(-number // CLIENTS))]
        dsn = f"{self.logged.server.dsn} options='-c search_path={self.logged.name}'"
        out = subprocess.DEVNULL
        self._load.append(subprocess.Popen([*command, *seed, dsn], stdout=out, stderr=subprocess.PIPE, text=True))

    def start(self, slots: int, strike: Strike = NONE, tries: int = 1) -> Run:
        notes = self.logged.directory / support.unique("run")
        return Run.start(self.logged.file, notes, slots, strike, tries)

    def run_to_end(self, slots: int) -> float:
        """Seconds until a run that nobody disturbs has ended well, of all that the load has written."""
        self._load_done()
        return run_to_end(lambda: self.start(slots))

    def difference(self) -> Difference:
        """Of all there is."""
        found = Counter(version for table in TABLES for version in self._in_kafka(table))
        wanted = Counter[Version](self._wanted())
        extra = found - wanted
        if not self.by_log:
            # Versions that were written over before anybody looked may be there or not, once.
            ever = Counter[Version]((place, "", version) for place, _, version in self._told("op <> 'd'"))
            extra = found - ever
        return Difference((wanted - found).total(), extra.total())

    def _wanted(self) -> list[Version]:
        if self.by_log:
            return self._told("true")
        return [
            (table, "", version) for table in TABLES for (version,) in self.logged.ask(f"SELECT version FROM {table}")
        ]

    def _told(self, where: str) -> list[Version]:
        return [(place, op, version) for place, op, version in self.logged.ask(f"SELECT * FROM told WHERE {where}")]

    def _in_kafka(self, table: str) -> list[Version]:
        topic = f"{self.logged.name}.{table}"
        values = [
            json.loads(value)
            for number in range(PARTITIONS)
            for value in support.consume(self.logged.bootstrap, topic, partition=number)
            if value is not None
        ]
        if not self.by_log:
            return [(table, "", value["version"]) for value in values]
        return [(table, event["op"], (event["after"] or event["before"])["version"]) for event in values]

    def _load_done(self) -> None:
        for load in self._load:
            _, said = load.communicate(timeout=600)
            assert load.returncode == 0, said
        self._load = []

"""What each way to read a table misses of transactions that commit late: `python -m bench.late_commits`.

Ten writers insert and update rows in transactions of up to 1.3 s, of which a tenth is rolled back. Readers look every
0.1 s, each in its way, and once more when all is over. No Kafka is needed: what is read is what would be sent.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import psycopg2

from bench.progress import say
from calve.sink_core.config.source_systems import TopicNames
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.systems import TABLES
from tests.postgres import Postgres, postgres

WRITERS, LONGEST_S, ROLLED_BACK = 10, 1.3, 0.1
LOOK_S = 0.1
MANY = 1_000_000
TABLE = "public.late"
SCHEMA = """
CREATE TABLE late (id bigserial PRIMARY KEY, version int NOT NULL, at timestamptz NOT NULL);
CREATE INDEX ON late (at, id)
"""
_NUMBER, _TIME = {"by": "incrementing", "column": "id"}, {"by": "timestamp", "column": "at"}
WAYS: dict[str, dict[str, object]] = {
    "incrementing, settle 1 ms": {**_NUMBER, "settle": "1ms"},
    "timestamp, settle 1 ms": {**_TIME, "settle": "1ms"},
    "timestamp, settle 200 ms": {**_TIME, "settle": "200ms"},
    "timestamp, settle 2 s": {**_TIME, "settle": "2s"},
    "transaction": {"by": "transaction"},
}


@dataclass
class Reader:
    """A way to read, and what it has seen: by row the last version, and how many versions came again."""

    way: str
    url: str
    seen: dict[int, int] = field(default_factory=dict[int, int])
    again: int = 0

    def until(self, over: threading.Event) -> None:
        """Look again and again, and once all is `over` until nothing comes any more for as long as it settles."""
        tables = [{"table": TABLE, **WAYS[self.way]}]
        spec = SourceSpec(TABLES, {"url": self.url, "topics": TopicNames("late"), "tables": tables})
        stored, versions, quiet_since = dict[FlatMap, FlatMap](), set[tuple[int, int]](), time.monotonic()
        with OpenedSource(spec) as source:
            while not over.is_set() or time.monotonic() < quiet_since + 2 * LONGEST_S + 2:
                for work in source.plan(stored, Limits(MANY, MANY)):
                    for rows in source.read(work):
                        assert isinstance(rows, Rows), rows
                        self._take(rows, versions)
                        stored[work.partition] = rows.offset
                        quiet_since = time.monotonic() if rows.records else quiet_since
                time.sleep(LOOK_S)

    def lacks(self, rows: dict[int, int]) -> tuple[int, int]:
        """How many of the rows, by their versions, it never saw, and of how many an older version was the last."""
        missed = sum(row not in self.seen for row in rows)
        return missed, sum(self.seen.get(row, version) < version for row, version in rows.items())

    def _take(self, rows: Rows, versions: set[tuple[int, int]]) -> None:
        for record in rows.records:
            row = json.loads(record.value or b"")
            version = row["id"], row["version"]
            self.again += version in versions
            versions.add(version)
            self.seen[row["id"]] = row["version"]


def write(dsn: str, seconds: float, seed: int) -> None:
    """Transaction after transaction, for so long."""
    chance, deadline = random.Random(seed), time.monotonic() + seconds  # noqa: S311 - what is written, no secret
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        own = list[int]()
        while time.monotonic() < deadline:
            made = list[int]()
            for _ in range(chance.randint(1, 3)):
                if own and chance.random() < 0.4:
                    changed = "UPDATE late SET version = version + 1, at = clock_timestamp() WHERE id = %s"
                    cursor.execute(changed, (chance.choice(own),))
                else:
                    cursor.execute("INSERT INTO late (version, at) VALUES (0, clock_timestamp()) RETURNING id")
                    made += [row[0] for row in cursor.fetchall()]
            time.sleep(chance.choice((0.0, 0.0, chance.uniform(0.0, LONGEST_S))))
            if chance.random() < ROLLED_BACK:
                connection.rollback()
            else:
                connection.commit()
                own += made


def measured(server: Postgres, seconds: float, seed: int) -> tuple[dict[int, int], list[Reader]]:
    """The rows at the end with their versions, and what each reader has seen. The table is made first."""
    with closing(psycopg2.connect(server.dsn)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(SCHEMA)
    readers, over = [Reader(way, server.url.replace("+psycopg2", "")) for way in WAYS], threading.Event()
    with ThreadPoolExecutor(WRITERS + len(readers)) as pool:
        reading = [pool.submit(reader.until, over) for reader in readers]
        writing = [pool.submit(write, server.dsn, seconds, seed + number) for number in range(WRITERS)]
        for writer in writing:
            writer.result()
        over.set()
        for reader in reading:
            reader.result()
    with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, version FROM late")
        return dict(cursor.fetchall()), readers


def table(rows: dict[int, int], readers: Iterable[Reader]) -> str:
    """As in docs/sources.md."""
    lines = [
        f"| `by` | never seen of {len(rows):,} rows | an older version at the end | read again |",
        "|---|---:|---:|---:|",
    ]
    for reader in readers:
        missed, stale = reader.lacks(rows)
        lines.append(f"| {reader.way} | {missed:,} | {stale:,} | {reader.again:,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.late_commits", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="how long rows change (20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is written (1)")
    options = parser.parse_args()
    with postgres() as server:
        say(f"changing rows for {options.seconds:g} s")
        print(table(*measured(server, options.seconds, options.seed)))


if __name__ == "__main__":
    main()

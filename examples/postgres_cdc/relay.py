"""Changes of PostgreSQL tables into Kafka, as change events of Debezium: stands in for Debezium, which you would run.

`python -m examples.postgres_cdc.relay --postgres "dbname=bank" --bootstrap 127.0.0.1:9092` creates the replication
slot, sends the rows that are there, and then what changes, until Ctrl-C. Like Debezium it may send events again after
it was killed, in the same order, and never leaves one out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.postgres_cdc.pgoutput import Decoder, Event, value_of

KEYS: Mapping[str, Sequence[str]] = {"public.accounts": ("id",)}
"""The tables of the publication, and their primary keys."""

SLOT = PUBLICATION = "calve"
PREFIX, PARTITIONS = "pg", 3
CHANGES_AT_ONCE = 2_000
IDLE_S, TIMEOUT_S = 0.2, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", default="dbname=bank", help="as psql takes it: dbname=… host=… user=…")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--prefix", default=PREFIX, help="of the topics' names: PREFIX.public.accounts")
    options = parser.parse_args()
    with closing(Relay(options.postgres, options.bootstrap, prefix=options.prefix)) as relay:
        print(f"{relay.prepare():,} rows sent")
        while True:
            sent = relay.forward()
            print(f"{sent:,} events sent") if sent else time.sleep(IDLE_S)


class Relay:
    """From the slot of a database to topics `<prefix>.<schema>.<table>`. Raises psycopg2's and Kafka's own errors."""

    def __init__(self, postgres: str, bootstrap: str, *, prefix: str = PREFIX) -> None:
        self._postgres, self._bootstrap, self._prefix = postgres, bootstrap, prefix
        self._connection = connected(postgres)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def close(self) -> None:
        self._connection.close()

    def prepare(self) -> int:
        """Create topics and slot, and send the rows from before the slot as snapshot events. Nothing if the slot is
        there. Returns the number of events.
        """
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (SLOT,))
            if cursor.fetchone():
                return 0
        topics = [NewTopic(f"{self._prefix}.{table}", PARTITIONS, 1) for table in KEYS]
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        for created in admin.create_topics(topics).values():
            created.result(TIMEOUT_S)
        with at_rest(self._postgres) as resting, self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,)
            )
            (lsn,) = cursor.fetchone() or (0,)
            events = [event for table in KEYS for event in self._snapshot(resting, table, int(lsn))]
        self._send(events)
        return len(events)

    def forward(self, upto_lsn: int | None = None) -> int:
        """Send what has changed since the last time, a few thousand events at most; of transactions that were committed
        before `upto_lsn`, if given. Returns the number of events.
        """
        upto, options = pg_lsn(upto_lsn), ("proto_version", "1", "publication_names", PUBLICATION)
        decoder, events = Decoder(KEYS), list[Event]()
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_peek_binary_changes(%s, %s, %s, %s, %s, %s, %s)",
                (SLOT, upto, CHANGES_AT_ONCE, *options),
            )
            for lsn, message in cursor:
                events += decoder.events(int(lsn), bytes(message))
            self._send(events)
            if decoder.end_lsn:
                # Once Kafka has them. Killed before this, they are sent again.
                cursor.execute("SELECT pg_replication_slot_advance(%s, %s)", (SLOT, pg_lsn(decoder.end_lsn)))
        return len(events)

    def _snapshot(self, resting: Any, table: str, lsn: int) -> list[Event]:
        schema, _, name = table.partition(".")
        with resting.cursor() as cursor:
            # Texts, as in messages of logical decoding.
            columns = _columns(cursor, schema, name)
            cursor.execute(f"SELECT {', '.join(f'{column}::text' for column in columns)} FROM {table}")  # noqa: S608
            rows = [
                {
                    column: None if text is None else value_of(text, kind)
                    for (column, kind), text in zip(columns.items(), row, strict=True)
                }
                for row in cursor
            ]
        now_ms = time.time_ns() // 1_000_000
        source = {"connector": "postgresql", "schema": schema, "table": name, "lsn": lsn, "ts_ms": now_ms}
        return [
            Event(
                table,
                {column: row[column] for column in KEYS[table]},
                {"before": None, "after": row, "source": source, "op": "r", "ts_ms": now_ms},
            )
            for row in rows
        ]

    def _send(self, events: Sequence[Event]) -> None:
        """All are in Kafka when this returns. The partition is that of the key."""
        failed: list[object] = []
        for event in events:
            key, value = (None if part is None else json.dumps(part).encode() for part in (event.key, event.value))
            while True:
                try:
                    self._producer.produce(
                        f"{self._prefix}.{event.table}",
                        value,
                        key,
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left = self._producer.flush(TIMEOUT_S)
        if left or failed:
            raise KafkaException(f"{left:,} events were not sent in {TIMEOUT_S:.0f} s, {len(failed):,} failed")


@contextmanager
def at_rest(postgres: str) -> Generator[Any]:
    """A connection while nobody can change the tables; transactions that have changed them are over."""
    with closing(connected(postgres)) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for table in KEYS:
            cursor.execute(f"LOCK TABLE {table} IN SHARE MODE")
        yield connection
        cursor.execute("COMMIT")


def connected(postgres: str) -> Any:
    """A connection that commits each statement, with texts as `value_of` wants them."""
    connection = psycopg2.connect(postgres, options="-c timezone=UTC -c datestyle=ISO")
    connection.autocommit = True
    return connection


def pg_lsn(lsn: int | None) -> str | None:
    """As PostgreSQL writes it."""
    return None if lsn is None else f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _columns(cursor: Any, schema: str, name: str) -> dict[str, int]:
    """Ids of types by column."""
    cursor.execute(
        "SELECT attname, atttypid::bigint FROM pg_attribute WHERE attrelid = format('%%I.%%I', %s, %s)::regclass "
        "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (schema, name),
    )
    return dict(cursor.fetchall())


if __name__ == "__main__":
    main()

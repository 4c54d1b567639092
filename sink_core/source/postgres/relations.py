"""Which tables a publication has, which of them were read, and what keeps one from being read. Pure.

A relation is its oid: a name passes from one to another when tables are renamed, swapped, or dropped and made anew.
What the log has of a relation goes to the topic into which its rows were read, whatever its name is by now. Under
another name it is a table to be read, and that begins once the log was read up to where the name was seen first:
what the topic had before comes to its end, then comes what is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calve.sink_core.config.fields import TOPIC_NAME
from calve.sink_core.control.status import Blocker
from calve.sink_core.source.base import Stored
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.visibility import TableSnapshot, lsn_of, lsn_text

KEY = """
ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (attnum, n), pg_attribute a
      WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.attnum AND k.n <= i.indnkeyatts
        AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END ORDER BY k.n)
"""
"""The columns of a record's key in SQL, of `pg_class c`: of the index that PostgreSQL's log goes by, in its order."""

_TOPIC_NAME = re.compile(TOPIC_NAME).match


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of the publication. `member` changes when it leaves the publication and comes back, by its name, its
    schema or with the publication. `columns` are those that are published, empty where all are; `key` those of the
    primary key, or of the index that is the replica identity, in its order; `full` if the identity is the whole row.
    `rows` is PostgreSQL's estimate, by its size before there is one. `readable`: the user may select all columns;
    `hides_rows`: a policy decides which rows the user sees.
    """

    oid: int
    schema: str
    table: str
    member: int
    columns: Sequence[str]
    filter: str | None
    partitioned: bool
    key: Sequence[str]
    full: bool
    rows: int
    readable: bool
    hides_rows: bool

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def partition(self) -> FlatMap:
        """The source partition that says in which snapshot its rows were read."""
        return FlatMap({"oid": self.oid, "table": self.name})

    @property
    def unpublished_key(self) -> list[str]:
        """The columns of its key that are not published."""
        return sorted({*self.key} - {*self.columns}) if self.columns else []

    def offset(self, snapshot: TableSnapshot, topic: str) -> FlatMap:
        """What is stored once its rows are in `topic`."""
        key = json.dumps([*self.key])
        at = {"member": self.member, "snapshot": snapshot.snapshot, "lsn": lsn_text(snapshot.lsn)}
        return FlatMap({**at, "topic": topic, "key": key})

    def blocker(self, topic: str, user: str | None) -> Blocker | None:
        """Why its rows can't be read by `user` into `topic`, if they can't; without a user why its changes can't."""
        if not _TOPIC_NAME(topic) or topic in (".", ".."):
            return Blocker(
                self.name,
                f"no topic can be called {topic!r}",
                "name its topic in target.topic_by_table, or the table in source.log.exclude",
            )
        if self.unpublished_key:
            why = f"its key has {', '.join(self.unpublished_key)}, which the publication's list of columns lacks"
            return Blocker(self.name, why, "publish the columns of its key too: ALTER PUBLICATION … SET TABLE …")
        if user is not None and not self.readable:
            grant = f"GRANT USAGE ON SCHEMA {self.schema} TO {user}; GRANT SELECT ON {self.name} TO {user}"
            return Blocker(self.name, f"{user} may not read it", grant)
        if user is not None and self.hides_rows:
            why = f"row-level security decides which of its rows {user} sees"
            return Blocker(self.name, why, f"ALTER ROLE {user} BYPASSRLS, or leave the table out of the publication")
        return None


TopicOf = Callable[[str, str], str]
"""The topic of a schema's table."""


class ReadTable(NamedTuple):
    """A table whose rows are in `topic`, as they were in a snapshot (see `TableSnapshot`), by the columns of `key`."""

    snapshot: str
    lsn: str
    topic: str
    key: Sequence[str]

    @property
    def seen_by(self) -> TableSnapshot:
        """The snapshot its rows were read in."""
        return TableSnapshot(self.snapshot, lsn_of(self.lsn))


def read_tables(stored: Stored) -> dict[int, ReadTable]:
    """By oid each table as it was read last: one that was renamed has been read under several names."""
    return {
        oid: ReadTable(str(at["snapshot"]), str(at["lsn"]), str(at["topic"]), json.loads(str(at["key"])))
        for oid, (_, at) in _newest(stored).items()
    }


def blocked(tables: Iterable[PublishedTable], topic_of: TopicOf, user: str | None) -> dict[FlatMap, Blocker]:
    """By source partition what keeps tables from being read (see `PublishedTable.blocker`); of several that one topic
    would have, all but the first.
    """
    blockers, of_topic = dict[FlatMap, Blocker](), dict[str, PublishedTable]()
    for table in tables:
        topic = topic_of(table.schema, table.table)
        blocker = table.blocker(topic, user)
        if blocker is None and (other := of_topic.setdefault(topic, table)) is not table:
            why = f"{topic} is the topic of {other.name}"
            blocker = Blocker(
                table.name, why, "write {schema} and {table} apart in target.topics, or set target.topic_by_table"
            )
        if blocker is not None:
            blockers[table.partition] = blocker
    return blockers


def unread(tables: Iterable[PublishedTable], stored: Stored, topic_of: TopicOf) -> list[PublishedTable]:
    """The tables whose rows were not read into their topic since they are in the publication.

    Where the identity is the whole row, the log does not say which columns made the key when it was written: a table
    that has another key since is read anew.
    """
    newest = _newest(stored)
    return [
        table for table in tables if not _is_read(table, topic_of(table.schema, table.table), newest.get(table.oid))
    ]


def key_of(names: Sequence[str], identity: Sequence[str], orders: Iterable[Sequence[str]]) -> Sequence[str]:
    """The columns of a record's key, in their order; none where there is no key.

    `identity` are the columns that the log marks: it has them in the order of the table. `orders` are the keys that are
    known of the table, the one its rows were read by first. All columns are marked if the identity is the whole row, or
    if the key has them all.
    """
    if identity and len(identity) < len(names):
        return next((order for order in orders if {*order} == {*identity}), identity)
    return next((order for order in orders if {*order} <= {*names}), ())


def _is_read(table: PublishedTable, topic: str, newest: tuple[FlatMap, FlatMap] | None) -> bool:
    if newest is None:
        return False
    partition, at = newest
    same_key = not table.full or json.loads(str(at["key"])) == [*table.key]
    return (partition, at["member"], at["topic"]) == (table.partition, table.member, topic) and same_key


def _newest(stored: Stored) -> Mapping[int, tuple[FlatMap, FlatMap]]:
    tables = [(partition, at) for partition, at in stored.items() if "oid" in partition]
    tables.sort(key=lambda each: lsn_of(str(each[1]["lsn"])))
    return {int(str(partition["oid"])): (partition, at) for partition, at in tables}

"""`PostgresLog`: the changes of a PostgreSQL database, from its log, and the rows that were there before.

    a batch  upto = the log's end → peek → records → Kafka transaction, offset within it → the slot is told that offset

The replication slot has one partition, `{"slot": name}`, with the offset `{"lsn", "seq", "timeline"}`: all transactions
whose commit lies before `lsn` are in Kafka, and the first `seq` changes of the one that commits there. The slot is told
`lsn` only once that was read back as committed; so it keeps whatever is to be read again. The offset moves to `upto`
also where nothing of ours has changed, or PostgreSQL would keep its log for ever.

Each table has a partition, `{"oid", "table"}`, whose offset says in which snapshot its rows were read: in one
transaction, after the slot was made, and before the log goes on; of a table that comes later, once the log was read
up to there (`relations.py`). One that the file excludes has none: it is read anew once it is no longer. Changes that
a snapshot has seen are left out (`visibility.py`), and so are those of a table whose rows are still to be read: its
snapshot will have seen them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.config.source_systems import TopicNames
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.finding import Finding
from calve.sink_core.findings import LOG_TIMELINE, PUBLICATION_ANEW, SLOT_AHEAD, SLOT_GONE
from calve.sink_core.source.base import FORGET, Limits, Record, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.avro import AvroRecords
from calve.sink_core.source.postgres.changes import AT_LEAST, LogPart
from calve.sink_core.source.postgres.pgoutput import Change, Decoder
from calve.sink_core.source.postgres.records import Debezium, Encode, Origin, Shape, as_json
from calve.sink_core.source.postgres.records import Rows as RowsAlone
from calve.sink_core.source.postgres.relations import PublishedTable, ReadTable, read_tables, unread
from calve.sink_core.source.postgres.relations import blocked as blocked_tables
from calve.sink_core.source.postgres.server import POLL_S, SETTLE_S, ReplicationSlot, Server
from calve.sink_core.source.postgres.visibility import TableSnapshot, lsn_of, lsn_text
from calve.sink_core.timing import Deadline

WAL_OF_A_CHANGE = 200
"""Bytes, by which changes that wait are estimated: of a row of a hundred bytes or so, with its share of a commit."""


class PostgresLog:
    """A source of the log of one database. Raises Unreachable and ConfigError for what PostgreSQL says, FindingError
    where it contradicts what is stored.
    """

    def __init__(
        self,
        *,
        url: str,
        topics: TopicNames,
        slot: str,
        publication: str,
        snapshot: str,
        shape: str,
        tables: Sequence[str] = (),
        exclude: Sequence[str] = (),
        registry: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = Server(url)
        self._topics, self._slot, self._publication = topics, slot, publication
        self._snapshots, self._shape_name = snapshot == "initial", shape
        self._at = FlatMap({"slot": slot})
        self._named, self._excluded = frozenset(tables), tuple(exclude)
        settings = RegistrySettings("of the target", registry) if registry is not None else None
        self._encode: Encode = as_json if settings is None else AvroRecords(settings, debezium=shape == "debezium")
        self._topics_read, self._gone = set[str](), set[FlatMap]()
        self._settled = set[int]()
        self._first_seen = dict[FlatMap, _FirstSeen]()

    @property
    def fingerprint(self) -> str:
        identity = self._server.identity()
        return f"postgresql {identity.system}, database {identity.database}, slot {self._slot}"

    def topics(self) -> Sequence[Topic]:
        """Of the publication's tables, and of those that have left it and of which the log may still tell."""
        tables = self._tables()
        blocked = self._blocked(tables)
        published = {self._topics.of(each.schema, each.table) for each in tables if each.partition not in blocked}
        return [Topic(name) for name in sorted(published | self._topics_read)]

    def prepare(self, stored: Stored) -> None:
        published = self._tables()
        slot, database = self._server.slot(self._slot), self._server.identity().database
        if (finding := self._contradiction(stored, slot)) is not None:
            raise finding.error()
        if slot is None:
            self._server.create_slot(self._slot)
            self._settled = {table.oid for table in published}
        elif (slot.plugin, slot.database, slot.lost) != ("pgoutput", database, ""):
            raise ConfigError(
                f"replication slot {self._slot} of {slot.plugin} in database {slot.database} {slot.lost}",
                hint="name another one in source.log.slot, or drop this one if nobody needs it",
                code=Code.NOT_OUR_SLOT,
            )
        elif not stored and self._snapshots:
            # All rows are about to be read: what the slot has of before is of no use, and may be of another
            # publication.
            self._server.advance(self._slot, self._server.end())

    def check(self) -> None:
        """Read a message of the log as a run would, or make a slot for that. Raises what a run would raise."""
        self._tables()
        with self._decoding(None):
            self._server.try_reading(self._slot, self._publication)

    def _contradiction(self, stored: Stored, slot: ReplicationSlot | None) -> Finding | None:
        known, timeline = stored.get(self._at), self._server.identity().timeline
        # Before the log has an offset, the slot must tell of all that came behind the first table's snapshot.
        places = [known["lsn"]] if known is not None else [at["lsn"] for table, at in stored.items() if "oid" in table]
        if not places:
            return None
        lsn = min(map(str, places), key=lsn_of)
        if slot is None or slot.lost:
            found = "no such slot" if slot is None else f"invalidated: {slot.lost}"
            return SLOT_GONE.of(self._slot, stored=lsn, found=found)
        if known is not None and known["timeline"] != timeline:
            return LOG_TIMELINE.of(self._slot, stored=f"timeline {known['timeline']}", found=f"timeline {timeline}")
        if slot.confirmed > lsn_of(lsn):
            return SLOT_AHEAD.of(self._slot, stored=lsn, found=lsn_text(slot.confirmed))
        return None

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        tables, excluded = self._looked_up()
        if gone := [at for at in stored if at.get("oid") in excluded]:
            return [Work(at, stored[at], FORGET) for at in gone]
        new = self._unread(tables, self._blocked(tables), stored)
        slot, known, end = self._server.slot(self._slot), stored.get(self._at), self._server.end()
        keyless = {table.oid for table in tables if table.unpublished_key}
        read = {oid: table for oid, table in read_tables(stored).items() if oid not in keyless}
        self._topics_read.update(table.topic for table in read.values())
        if due := [table for table in new if self._is_due(table, known)]:
            next_xid = self._server.next_xid()
            return [self._snapshot_of(table, stored, next_xid) for table in due]
        if slot is None or self._contradiction(stored, slot) is not None:
            # Whoever leads makes the slot, or says what is wrong.
            return [Work(self._at, known, FlatMap({"lsn": lsn_text(end)}))]
        start = lsn_of(str(known["lsn"])) if known is not None else slot.confirmed
        until = lsn_of(str(limits.until)) if limits.until else end
        upto = max(start, min(end, until, start + limits.max_bytes))
        if upto == start and known is not None:
            return []
        bound = {
            "lsn": lsn_text(upto),
            "most": limits.max_records,
            "tables": json.dumps(read),
            "excluded": json.dumps(sorted(excluded)),
        }
        return [Work(self._at, known, FlatMap(bound), -(-(upto - start) // WAL_OF_A_CHANGE))]

    def _snapshot_of(self, table: PublishedTable, stored: Stored, next_xid: int) -> Work:
        """What a transaction wrote before its table was published is not in the log: none may be open by then. A slot
        that was made after that has waited for them.
        """
        at, first = table.partition, self._at not in stored
        beyond = 0 if first and table.oid in self._settled else next_xid
        bound = FlatMap({"member": table.member, "beyond": beyond})
        return Work(at, stored.get(at), bound, _size(table), whole=True)

    def _is_due(self, table: PublishedTable, known: FlatMap | None) -> bool:
        """Whether the rows of a table may be read: the log was read up to where the table was seen first, so that
        what its topic had before has come to its end; and no transaction is open of then, whose rows are in no log.
        """
        if known is None:
            return True
        first = self._first_seen[table.partition]
        return lsn_of(str(known["lsn"])) >= first.lsn and first.is_over(self._server)

    def read(self, work: Work) -> Iterator[Rows]:
        if work.bound == FORGET:
            self._gone.add(work.partition)
            return iter(())
        return self._snapshot(work) if "oid" in work.partition else self._changes(work)

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - reading moves it also without changes
        return dict.fromkeys(self._gone)

    def acknowledge(self, committed: Stored) -> None:
        known = committed.get(self._at)
        if known is None:
            return
        slot, lsn = self._server.slot(self._slot), lsn_of(str(known["lsn"]))
        if slot is not None and slot.confirmed < lsn:
            self._server.advance(self._slot, lsn)

    def waiting(self, stored: Stored) -> Waiting:
        slot, known = self._server.slot(self._slot), stored.get(self._at)
        tables = self._tables()
        blocked = self._blocked(tables)
        new = self._unread(tables, blocked, stored)
        end = max([self._server.end(), *(self._first_seen[table.partition].lsn for table in new)])
        start = lsn_of(str(known["lsn"])) if known is not None else slot.confirmed if slot is not None else end
        behind = max(0, end - start)
        rows = sum(_size(table) for table in new)
        what = f"{behind:,} bytes of log" + (f", about {rows:,} rows of {len(new):,} new tables" if new else "")
        held = max(0, end - slot.kept) if slot is not None else 0
        wrong = self._contradiction(stored, slot)
        return Waiting(
            -(-behind // WAL_OF_A_CHANGE) + rows,
            what,
            held,
            lsn_text(end),
            contradiction=wrong.error() if wrong is not None else None,
            blockers=[*blocked.values(), *(self._held_back(new) if known is not None else ())],
        )

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        self._server.close()

    def _snapshot(self, work: Work) -> Iterator[Rows]:
        """The rows of a table that has come into the publication."""
        table = next((each for each in self._tables() if each.partition == work.partition), None)
        if table is None:
            return
        beyond = int(str(work.bound["beyond"]))
        topic = self._topics.of(table.schema, table.table)
        with self._server.rows(table, topic, self._slot, beyond) as found:
            offset = table.offset(found.snapshot, topic)
            # No later than any change that comes behind: consumers order by it.
            origin, records = Origin(0, found.since, found.taken_ms), list[Record]()
            for cells in found.cells:
                records.append(self._shape.found(found.layout, cells, origin))
                if len(records) == AT_LEAST:
                    yield Rows(offset, self._encode(found.layout, records))
                    records = []
            yield Rows(offset, self._encode(found.layout, records))

    def _changes(self, work: Work) -> Iterator[Rows]:
        bound, start = work.bound, work.start
        upto = lsn_of(str(bound["lsn"]))
        slot = self._server.slot(self._slot)
        if slot is None or "tables" not in bound:
            return
        first, skipped = (lsn_of(str(start["lsn"])), int(str(start["seq"]))) if start else (slot.confirmed, 0)
        keys = {each.oid: each.key for each in self._tables()}
        tables = {int(oid): ReadTable(*each) for oid, each in json.loads(str(bound["tables"])).items()}
        excluded = frozenset[int](json.loads(str(bound["excluded"])))
        self._topics_read.update(table.topic for table in tables.values())
        decoder = Decoder(self._shape, self._server.types, self._topics.of, self._encode, keys, tables, excluded)
        most = int(str(bound["most"]))
        messages = self._messages(first, upto, most)
        snapshots = {oid: table.seen_by for oid, table in tables.items()}
        wants = partial(_wants, snapshots) if self._snapshots else lambda _change: True
        part = LogPart(self._server.identity().timeline, first, skipped, upto, most)
        yield from part.rows(messages, decoder, wants)

    def _messages(self, first: int, upto: int, most: int) -> Iterator[tuple[int, bytes]]:
        with self._decoding(first):
            yield from self._server.changes(self._slot, self._publication, upto, most)

    @contextmanager
    def _decoding(self, first: int | None) -> Generator[None]:
        """Raise FindingError where the log, from `first` on, can't be decoded although slot and publication are
        there.
        """
        try:
            yield
        except ConfigError as error:
            slot = self._server.slot(self._slot)
            if error.code != Code.DATABASE_LACKS or slot is None or not self._server.has_publication(self._publication):
                raise
            place = lsn_text(slot.confirmed if first is None else first)
            raise PUBLICATION_ANEW.of(self._publication, stored=place, found=error.message).error() from error

    @cached_property
    def _shape(self) -> Shape:
        return Debezium(self._server.identity().database) if self._shape_name == "debezium" else RowsAlone()

    def _unread(
        self, tables: Sequence[PublishedTable], blocked: Mapping[FlatMap, Blocker], stored: Stored
    ) -> list[PublishedTable]:
        """The tables whose rows are to be read, and can be; each is noted when it is seen first."""
        if not self._snapshots:
            return []
        new = [table for table in unread(tables, stored, self._topics.of) if table.partition not in blocked]
        if any(table.partition not in self._first_seen for table in new):
            # After the tables were looked up: whatever had their names before has committed by now.
            now = _FirstSeen(self._server.seen_end(), self._server.next_xid())
            for table in new:
                self._first_seen.setdefault(table.partition, now)
        return new

    def _blocked(self, tables: Sequence[PublishedTable]) -> dict[FlatMap, Blocker]:
        """By partition what keeps tables from being read. Raises ConfigError where rows are not read at all: changes of
        such a table would go nowhere, and nothing would read them later.
        """
        blockers = blocked_tables(tables, self._topics.of, self._server.user if self._snapshots else None)
        if blockers and not self._snapshots:
            first = next(iter(blockers.values()))
            raise ConfigError(f"table {first.where}: {first.why}", hint=first.hint, code=Code.TABLE_NOT_TAKEN)
        return blockers

    def _held_back(self, new: Sequence[PublishedTable]) -> Iterator[Blocker]:
        """The tables that wait for a transaction which was open when they were seen first."""
        oldest = self._server.oldest_xid() if new else 0
        for table in new:
            if oldest < self._first_seen[table.partition].next_xid:
                why = f"transaction {oldest} was open when it was seen first, and its rows may be in no log"
                yield Blocker(table.name, why, "let it end (pg_stat_activity.backend_xid)")

    def _tables(self) -> list[PublishedTable]:
        """Those of the publication that the file does not exclude. Raises ConfigError if one is missing that it
        names.
        """
        return self._looked_up()[0]

    def _looked_up(self) -> tuple[list[PublishedTable], frozenset[int]]:
        """As `_tables`, and the oids of those that the file excludes."""
        published = self._server.tables(self._publication)
        excluded = {
            table.oid for table in published if any(fnmatchcase(table.name, pattern) for pattern in self._excluded)
        }
        tables = [table for table in published if table.oid not in excluded]
        if missing := sorted(self._named.difference(table.name for table in tables)):
            raise ConfigError(
                f"publication {self._publication} lacks {', '.join(missing)}",
                hint=f"ALTER PUBLICATION {self._publication} ADD TABLE …; or take them out of source.log.tables",
                code=Code.NO_PUBLICATION,
            )
        return tables, frozenset(excluded)


@dataclass(slots=True)
class _FirstSeen:
    """When a table was seen first: where the log was, and the next transaction's id. A run waits once until those that
    were open have ended.
    """

    lsn: int
    next_xid: int
    deadline: Deadline | None = None

    def is_over(self, server: Server) -> bool:
        """Whether all transactions of then have ended."""
        self.deadline = self.deadline or Deadline.after(SETTLE_S)
        while server.oldest_xid() < self.next_xid:
            if self.deadline.passed:
                return False
            time.sleep(POLL_S)
        return True


def _wants(snapshots: Mapping[int, TableSnapshot], change: Change) -> bool:
    snapshot = snapshots.get(change.oid)
    # A table that is not there yet will be read by a snapshot that has seen this.
    return snapshot is not None and not snapshot.saw(change.xid, change.commit_lsn)


def _size(table: PublishedTable) -> int:
    return max(1, table.rows)

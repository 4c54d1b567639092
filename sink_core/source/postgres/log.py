"""`PostgresLog`: the changes of a PostgreSQL database, from its log, and the rows that were there before.

    a batch  upto = the log's end → peek → records → Kafka transaction, offset within it → the slot is told that offset

The replication slot has one partition, `{"slot": name}`, with the offset `{"lsn", "seq", "timeline"}`: all transactions
whose commit lies before `lsn` are in Kafka, and the first `seq` changes of the one that commits there. The slot is told
`lsn` only once that was read back as committed; so it keeps whatever is to be read again. The offset moves to `upto`
also where nothing of ours has changed, or PostgreSQL would keep its log for ever.

Each table has a partition, `{"oid", "table"}`, whose offset says in which snapshot its rows were read: in one
transaction, after the slot was made, and before the log goes on. Changes that a snapshot has seen are left out
(`visibility.py`), and so are those of a table whose rows are still to be read: its snapshot will have seen them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.config.source_systems import topic_of
from calve.sink_core.error_codes.source import NO_PUBLICATION, NOT_OUR_SLOT
from calve.sink_core.errors import ConfigError
from calve.sink_core.finding import Finding
from calve.sink_core.findings import LOG_TIMELINE, SLOT_AHEAD, SLOT_GONE
from calve.sink_core.source.base import BadRow, Limits, Record, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.avro import AvroRecords
from calve.sink_core.source.postgres.pgoutput import Change, Committed, Decoder
from calve.sink_core.source.postgres.records import Debezium, Encode, Origin, Shape, as_json
from calve.sink_core.source.postgres.records import Rows as RowsAlone
from calve.sink_core.source.postgres.server import PublishedTable, ReplicationSlot, Server
from calve.sink_core.source.postgres.visibility import TableSnapshot, lsn_of, lsn_text

AT_LEAST, AT_MOST = 10_000, 50_000
"""Changes between two offsets: at the first commit from so many on, and within a transaction after so many."""

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
        topics: str,
        slot: str,
        publication: str,
        snapshot: str,
        shape: str,
        tables: Sequence[str] = (),
        registry: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = Server(url)
        self._topics, self._slot, self._publication = topics, slot, publication
        self._snapshots, self._shape_name = snapshot == "initial", shape
        self._at = FlatMap({"slot": slot})
        self._named = frozenset(tables)
        settings = RegistrySettings("of the target", registry) if registry is not None else None
        self._encode: Encode = as_json if settings is None else AvroRecords(settings, debezium=shape == "debezium")
        self._seen = set[str]()
        self._settled = set[int]()

    @property
    def fingerprint(self) -> str:
        identity = self._server.identity()
        return f"postgresql {identity.system}, database {identity.database}, slot {self._slot}"

    def topics(self) -> Sequence[Topic]:
        """Of the publication's tables, and of those that have left it and that the log still told of."""
        published = {self._topic(each.schema, each.table) for each in self._tables()}
        return [Topic(name) for name in sorted(published | self._seen)]

    def prepare(self, stored: Stored) -> None:
        published = self._tables()
        slot, database = self._server.slot(self._slot), self._server.identity().database
        if (finding := self._contradiction(stored, slot)) is not None:
            raise finding.error()
        if slot is None:
            self._server.create_slot(self._slot)
            self._settled = {table.member for table in published}
        elif (slot.plugin, slot.database, slot.lost) != ("pgoutput", database, ""):
            raise ConfigError(
                f"replication slot {self._slot} of {slot.plugin} in database {slot.database} {slot.lost}",
                hint="name another one in source.log.slot, or drop this one if nobody needs it",
                code=NOT_OUR_SLOT,
            )

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
        slot, known, end = self._server.slot(self._slot), stored.get(self._at), self._server.end()
        if self._snapshots and (new := self._unread(stored)):
            next_xid = self._server.next_xid()
            return [self._snapshot_of(table, stored, next_xid) for table in new]
        if slot is None or self._contradiction(stored, slot) is not None:
            # Whoever leads makes the slot, or says what is wrong.
            return [Work(self._at, known, FlatMap({"lsn": lsn_text(end)}))]
        start = lsn_of(str(known["lsn"])) if known is not None else slot.confirmed
        until = lsn_of(str(limits.until)) if limits.until else end
        upto = max(start, min(end, until, start + limits.max_bytes))
        if upto == start and known is not None:
            return []
        tables = {
            partition["oid"]: [at["snapshot"], at["lsn"]] for partition, at in stored.items() if "oid" in partition
        }
        bound = {"lsn": lsn_text(upto), "most": limits.max_records, "tables": json.dumps(tables)}
        return [Work(self._at, known, FlatMap(bound), -(-(upto - start) // WAL_OF_A_CHANGE))]

    def _snapshot_of(self, table: PublishedTable, stored: Stored, next_xid: int) -> Work:
        """What a transaction wrote before its table was published is not in the log: none may be open by then. A slot
        that was made after that has waited for them.
        """
        at, beyond = _partition(table), 0 if table.member in self._settled else next_xid
        bound = FlatMap({"member": table.member, "beyond": beyond})
        return Work(at, stored.get(at), bound, _size(table), whole=True)

    def read(self, work: Work) -> Iterator[Rows]:
        return self._snapshot(work) if "oid" in work.partition else self._changes(work)

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - reading moves it also without changes
        return None

    def acknowledge(self, committed: Stored) -> None:
        known = committed.get(self._at)
        if known is None:
            return
        slot, lsn = self._server.slot(self._slot), lsn_of(str(known["lsn"]))
        if slot is not None and slot.confirmed < lsn:
            self._server.advance(self._slot, lsn)

    def waiting(self, stored: Stored) -> Waiting:
        slot, known = self._server.slot(self._slot), stored.get(self._at)
        end = self._server.end()
        new = self._unread(stored) if self._snapshots else []
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
        )

    def exactly_once(self) -> Support:
        return Support(True)

    def close(self) -> None:
        self._server.close()

    def _snapshot(self, work: Work) -> Iterator[Rows]:
        """The rows of a table that has come into the publication."""
        table = next((each for each in self._tables() if each.oid == work.partition["oid"]), None)
        if table is None:
            return
        beyond = int(str(work.bound["beyond"]))
        with self._server.rows(table, self._topic(table.schema, table.table), self._slot, beyond) as found:
            seen = found.snapshot
            offset = FlatMap({"member": table.member, "snapshot": seen.snapshot, "lsn": lsn_text(seen.lsn)})
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
        done = first
        keys = {each.oid: each.key for each in self._tables()}
        decoder = Decoder(self._shape, self._server.types, self._topic, self._encode, keys)
        offset = partial(_offset, self._server.identity().timeline)
        piece, most, messages = _Piece(), int(str(bound["most"])), 0
        seen = _Seen(json.loads(str(bound["tables"]))) if self._snapshots else None
        within = False
        for lsn, message in self._server.changes(self._slot, self._publication, upto, most):
            messages += 1
            for told in decoder.read(lsn, message):
                if told.commit_lsn >= upto:
                    # A transaction that commits behind the bound is another batch's.
                    within = True
                    break
                if isinstance(told, Committed):
                    done = max(done, told.end_lsn)
                    if len(piece) >= AT_LEAST:
                        yield piece.rows(offset(told.end_lsn, 0))
                        piece = _Piece()
                elif (told.commit_lsn, told.seq) > (first, skipped):
                    piece.take(told, wanted=seen is None or seen.wants(told))
                    if len(piece) >= AT_MOST:
                        yield piece.rows(offset(told.commit_lsn, told.seq))
                        piece = _Piece()
            if within:
                break
        self._seen.update(layout.topic for layout in decoder.layouts.values())
        # Cut off by the number of messages, behind a whole transaction; else all is read that committed before `upto`.
        yield piece.rows(offset(done if messages >= most and not within else upto, 0))

    @cached_property
    def _shape(self) -> Shape:
        return Debezium(self._server.identity().database) if self._shape_name == "debezium" else RowsAlone()

    def _unread(self, stored: Stored) -> list[PublishedTable]:
        """The tables whose rows were not read since they are in the publication."""
        return [
            table
            for table in self._tables()
            if (known := stored.get(_partition(table))) is None or known["member"] != table.member
        ]

    def _tables(self) -> list[PublishedTable]:
        """Raises ConfigError if the publication lacks a table that the file names."""
        tables = self._server.tables(self._publication)
        if missing := sorted(self._named.difference(table.name for table in tables)):
            raise ConfigError(
                f"publication {self._publication} lacks {', '.join(missing)}",
                hint=f"ALTER PUBLICATION {self._publication} ADD TABLE …; or take them out of source.log.tables",
                code=NO_PUBLICATION,
            )
        return tables

    def _topic(self, schema: str, table: str) -> str:
        return topic_of(self._topics, schema, table)


class _Piece:
    """What is read since the last offset."""

    def __init__(self) -> None:
        self._records, self._bad, self._dropped, self._changes = list[Record](), list[BadRow](), 0, 0

    def __len__(self) -> int:
        return self._changes

    def take(self, change: Change, *, wanted: bool) -> None:
        self._changes += 1
        if wanted:
            self._records += change.records
            self._bad += change.bad
        else:
            self._dropped += 1

    def rows(self, offset: FlatMap) -> Rows:
        return Rows(offset, self._records, self._bad, self._dropped)


class _Seen:
    """The snapshots of tables, by which changes are left out."""

    def __init__(self, tables: Mapping[str, tuple[str, str]]) -> None:
        self._by_oid = {int(oid): TableSnapshot(snapshot, lsn_of(lsn)) for oid, (snapshot, lsn) in tables.items()}

    def wants(self, change: Change) -> bool:
        snapshot = self._by_oid.get(change.oid)
        # A table that is not there yet will be read by a snapshot that has seen this.
        return snapshot is not None and not snapshot.saw(change.xid, change.commit_lsn)


def _offset(timeline: int, lsn: int, seq: int) -> FlatMap:
    return FlatMap({"lsn": lsn_text(lsn), "seq": seq, "timeline": timeline})


def _partition(table: PublishedTable) -> FlatMap:
    return FlatMap({"oid": table.oid, "table": table.name})


def _size(table: PublishedTable) -> int:
    return max(1, table.rows)

"""What a range job is planned on, read in the order that makes it safe: the token, the log to its end, then tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyroaring import BitMap64

from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Decision
from calve.sink_core.control.events import Event, Logged
from calve.sink_core.errors import TableUnusable, Unreachable
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import log_starts
from calve.sink_core.offset_sets import by_partition, of_range
from calve.sink_core.offsets import NO_TOKEN, OffsetRange, Position, Positions, TopicPartition
from calve.sink_core.sink.ledger.rows import COLUMNS, LedgerRow, rows_of, with_former
from calve.sink_core.sink.ledger.stored_offsets import held_by
from calve.sink_core.sink.loop.job import Publication
from calve.sink_core.sink.loop.planning import check_topics
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.job import decide, deleted
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tables.log.events import DataWritten
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tables.proof import Evidence

_PENDING_S = 5.0
_SHOWN = 5


def token_and_log(session: Session) -> tuple[Position, CommitState]:
    """The token, then the log to the end seen after it.

    The other way round a range job that is published in between would be missing in the log that was read, and its
    ranges would be read once more under the token that it left. A publisher that died in its transaction holds both up
    until that times out; the fence ends it at once. A living one needs milliseconds, and would only try again.
    """
    token = session.publisher.token
    try:
        found = session.group.positions([token], timeout_s=_PENDING_S)
        state = session.log.refresh_to_end(timeout_s=_PENDING_S)
    except Unreachable:
        found, state = session.publisher.fence_and_read([token])
    return found.get(token, NO_TOKEN), state


def by_token(
    session: Session, what: str, batch_id: str, planned: Position, events: Sequence[Event], topic_ids: Mapping[str, str]
) -> Publication:
    """The publication of a range job: it moves the token and no position, and counts if the token is as `planned`."""
    token = session.publisher.token

    def decided(found: Positions, state: CommitState) -> Decision:
        return decide(batch_id, planned, found.get(token, NO_TOKEN), state)

    return Publication(what, events, {token: Position(planned.offset + 1, batch_id)}, dict(topic_ids), decided)


def ledger_rows(session: Session) -> list[LedgerRow]:
    """Every row of the ledger, those included that are published and not committed yet.

    Raises FindingError if the ledger has one, TableUnusable if it can't be read.
    """
    rows = rows_of(_read(session, session.pipeline.ledger_table, COLUMNS))
    last = session.log.state.last_publish
    return list(with_former(rows, last.topic_ids if last else {}))


def dead_letters_in(session: Session, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, tuple[int, ...]]:
    """The offsets of records within `ranges` that are dead letters, those left out that a job has moved into tables and
    that are still to leave.
    """
    name = session.pipeline.dead_letter_table
    loaded = session.load([name])[name]
    # What leaves must be told by the same look as what is there.
    pending = _pending(session, loaded) if loaded else []
    seen = held_by(_rows(session, loaded, pending, ("topic", "partition", "offset"))).seen if loaded else {}
    jobs = (session.log.state.range_jobs[each.event.batch_id, name] for each in pending if each.event.removes)
    for at, offsets in by_partition(part for job in jobs for part in job.ranges if part.rows).items():
        seen[at] = seen.get(at, BitMap64()) - offsets
    found: dict[TopicPartition, BitMap64] = {}
    for part in ranges:
        inside = seen.get(part.at, BitMap64()) & of_range(part.start, part.end)
        if inside:
            found.setdefault(part.at, BitMap64()).update(inside)
    return {at: tuple(offsets) for at, offsets in found.items()}


def check_readable(session: Session, ranges: Sequence[OffsetRange], topic_ids: dict[str, str]) -> None:
    """The topics are still those that the ranges were published from, and Kafka still holds all of them.

    Raises FindingError for a topic that was recreated, TableUnusable naming the ranges that retention has taken.
    """
    check_topics(session, topic_ids)
    starts = log_starts(session.admin, sorted({r.at for r in ranges}), timeout_s=ADMIN_TIMEOUT_S)
    gone = deleted(ranges, starts)
    if gone:
        more = f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
        raise TableUnusable(
            f"{', '.join(map(str, gone[:_SHOWN]))}{more}: retention has deleted these records from Kafka, they can't "
            "be read again",
            hint="nothing was written; for a table that was added set `history: none`, for a finding choose `accept`, "
            "or `recommit` if the files are still there; of a replay leave these ranges out",
            code=Code.GONE_FROM_KAFKA,
        )


def places_in(
    session: Session, name: str, columns: Sequence[str], *, struct: str | None
) -> dict[TopicPartition, BitMap64]:
    """The source offsets of a table's rows, what is published and not committed yet included; see `held_by`."""
    return held_by(_read(session, name, columns), struct=struct).seen


def _read(session: Session, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    loaded = session.load([name])[name]
    if loaded is not None:
        yield from _rows(session, loaded, _pending(session, loaded), columns)


def _pending(session: Session, loaded: LoadedTable) -> list[Logged[DataWritten]]:
    return session.log.state.pending(loaded.name, loaded.uuid, loaded.stored_offset)


def _rows(
    session: Session, loaded: LoadedTable, pending: Sequence[Logged[DataWritten]], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    name, evidence = loaded.name, Evidence()
    proven = session.lake_of(name).proven(loaded)
    for rows in (proven.head(evidence), proven.pending(pending, evidence)) if proven else ():
        yield from rows.read(columns)
    why = [violation.message for violation in evidence.violations] + [skipped.why for skipped in evidence.not_checked]
    if proven is None or why:
        raise TableUnusable(
            f"{name}: can't be read as a whole: {why[0] if why else 'no reader for its format'}",
            hint=f"calve verify {session.pipeline.path}",
            code=Code.FILES_GONE,
        )

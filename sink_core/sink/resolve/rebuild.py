"""The answer to a control topic that was created again, lost events or holds those of others: it is made anew from the
ledger and the tables.

What is in a table is told by its snapshots, how far the source was read by the ledger. A batch whose events are gone,
and that no table has, is read again. In this order, so that a finding stands until the end:

1. compare ledger and tables; append a binding, delete every event: from here on the topic is "truncated"
2. an empty snapshot on each table, with the topic's id and its end: whoever still has old events in hand can't commit
3. compare again; one transaction with a checkpoint that stands for everything, and the positions

Crash points (the whole table is in docs/design.md):

    resolve.after-delete    the control topic is empty: truncated, which `rebuild` answers
    resolve.after-stamp     some tables have the topic's new end already
    publish.*               checkpoint and positions are there together or not at all
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.control.checkpoint import standing
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.log import PARTITION
from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import describe_topics
from calve.sink_core.offsets import Offsets, Position, Positions, TopicPartition, offsets_to_dense
from calve.sink_core.sink.loop.planning import BOOTSTRAP
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve.accounts import Accounts, accounts_of, disagreement
from calve.sink_core.tables.history.record import SnapshotRecord, to_summary
from calve.sink_core.tables.history.shares import Step
from calve.sink_core.tables.history.view import TableView
from calve.sink_core.tables.log.events import TableCheckpoint
from calve.sink_core.tables.log.state import UNREAD, CommitState
from calve.sink_core.timing import back_off

REBUILT = "rebuilt-"
"""Begins the id that a rebuild leaves at the positions."""

NOWHERE = Position(0, "")

BEFORE = ((-1, 0),)
"""Stands in `SnapshotRecord.given_up` for batches whose events were in a control topic that is gone: no offset of the
new one."""


def rebuild(session: Session, found: FindingError) -> Answer:
    """Make the control topic anew. Refused if a table lacks what the ledger has, or has what the ledger lacks."""
    accounts, _views = _compared(session, found)
    positions = _wanted(session, found, accounts)
    seen = _seen(session)
    now = session.group.positions(positions)
    again = sum(max(0, now[at].offset - offset) for at, offset in positions.items() if at in now)
    would = (
        f"{session.log.topic}: made anew from {len(accounts.batches):,} batches of the ledger",
        f"{len(positions):,} positions are those of the ledger; {again:,} offsets above, in no table, are read again",
    )
    return Answer(would, lambda: _carry_out(session, found, seen))


def _seen(session: Session) -> tuple[int, str | None]:
    """Where the control topic begins, and the last publish in it."""
    return session.log.log_start(), session.log.state.last_batch_id


def _carry_out(session: Session, found: FindingError, seen: tuple[int, str | None]) -> Lines:
    _accounts, compared = _compared(session, found)
    with session.log.about_to_replace():
        session.publisher.fence_and_read([])
        session.log.append(session.new_binding())
        end = session.log.refresh_to_end().next_offset
        # Else what was published since would be deleted; and what is published from here on lies above `end`.
        (start, last), (start_now, last_now) = seen, _seen(session)
        if (start, last) != (start_now, last_now):
            was, now = f"from offset {start} to batch {last}", f"from offset {start_now} to batch {last_now}"
            raise overtaken(session, f"{session.log.topic} went {was}, and goes now {now}")
        session.log.delete_below(end)
    reach("resolve.after-delete")
    for name in _tables(session):
        _stamp(session, name, end, compared.get(name))
        reach("resolve.after-stamp")
    accounts, views = _compared(session, found)
    positions = _wanted(session, found, accounts)
    batch_id = f"{REBUILT}{uuid.uuid4()}"
    event = _checkpoint(session, accounts, views, positions, batch_id, end)
    placed = {at: Position(offset, batch_id) for at, offset in positions.items()}
    placed[TopicPartition(session.log.topic, PARTITION)] = Position(0, batch_id)
    session.log.close()

    def decide(_found: Positions, state: CommitState) -> Decision:
        if state.last_batch_id == batch_id:
            return Decision(Verdict.ALREADY_PUBLISHED, "an earlier try landed")
        if state.last_publish is not None:
            return Decision(Verdict.STALE, f"batch {state.last_batch_id} was published meanwhile")
        return Decision(Verdict.PUBLISH, "nothing was published since")

    decision = session.publisher.publish(decide, [event], placed)
    if decision.verdict is Verdict.STALE:
        raise overtaken(session, decision.why)
    session.log.refresh_to_end()
    return (f"{session.log.topic} begins at {end} with a checkpoint of {len(accounts.batches):,} batches",)


def _tables(session: Session) -> list[str]:
    return [name for name in session.pipeline.table_names if session.look(name, compare=False).table is not None]


def _compared(session: Session, found: FindingError) -> tuple[Accounts, Mapping[str, TableView]]:
    """Ledger and tables as they are. Raises ConfigError where they disagree: then events are needed that are gone."""
    pipeline, views = session.pipeline, dict[str, TableView]()
    ledger = load_if_there(session.catalog, pipeline.ledger_table)
    if ledger is None:
        raise no_answer(found, "rebuild", f"there is no ledger {pipeline.ledger_table} to rebuild from")
    accounts = accounts_of(ledger, pipeline.dead_letter_table)
    # The log that spoke of tables found at run time is gone; the ledger names those that got rows.
    session.pipeline = pipeline = pipeline.having(
        pipeline.matched, {t for fed in accounts.batches.values() for t in fed}
    )
    for name in pipeline.table_names:
        if table := session.look(name, compare=False).table:
            views[name] = table.view
    dropped = [name for name in pipeline.table_names if name not in views]
    if trouble := disagreement(accounts, views, pipeline.ledger_table, dropped=dropped):
        raise no_answer(found, "rebuild", trouble)
    return accounts, views


def _wanted(session: Session, found: FindingError, accounts: Accounts) -> Offsets:
    """The ledger's ends. Of partitions that it has no row of, the group's positions if they were put there before the
    first batch, or by one that the ledger has: nothing of them was read. Else a batch that is in no table may have read
    them, and they begin again, at offset 0.

    Raises ConfigError where nothing tells any more where such a partition began.
    """
    there = session.admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    topics = [t for t in {*accounts.topic_ids, *session.pipeline.topics} if t in there]
    partitions = [TopicPartition(topic, p) for topic in topics for p in there[topic].partitions]
    positions = session.group.positions(partitions)
    unread = {at: positions.get(at, NOWHERE) for at in partitions if at not in accounts.ends}
    # A partition without position is new, unless the group has lost them all.
    again = {at: p for at, p in unread.items() if not _is_of_before(p, accounts) and (at in positions or not positions)}
    known = {at: position.offset for at, position in unread.items() if at in positions and at not in again}
    known |= {at: offset for at, offset in accounts.ends.items() if at in set(partitions)}
    if not again:
        return known
    if session.pipeline.config.source.start != "earliest":
        at, position = min(again.items())
        why = f"what moved its position last, {position.batch_id or 'if anything'}, is in no table"
        raise no_answer(found, "rebuild", f"where {at} began is written nowhere any more: {why}")
    # Not at the log start: what retention has taken since must be seen to be lost.
    return known | dict.fromkeys(again, 0)


def _is_of_before(position: Position, accounts: Accounts) -> bool:
    """Whether the last publish that wrote the position is in the ledger, or could have nothing there.

    What an earlier rebuild wrote is what the ledger had then. One without rows by now may have lost them.
    """
    before = (BOOTSTRAP, REBUILT) if accounts.batches else BOOTSTRAP
    return position.batch_id in accounts.batches or position.batch_id.startswith(before)


def _stamp(session: Session, name: str, end: int, compared: TableView | None) -> None:
    """The table has everything below `end`, by an empty snapshot of ours on its head.

    Raises RetriableError if it has lost something since it was `compared`: with its tag gone, only that tells.
    """
    lost_to: Exception | None = None
    for attempt_number in range(ATTEMPTS):
        table = session.look(name, compare=False).table
        if table is None:
            raise overtaken(session, f"{name} was dropped")
        view = table.view
        # After the load: another rebuild empties the topic before it stamps. Either it is seen here, or the swap fails.
        # That of a topic created again may have ended at the same offset.
        if not session.log.is_same_topic() or session.log.log_start() != end:
            raise overtaken(session, f"{session.log.topic} is being rebuilt by somebody else")
        if compared and not (view.uuid == compared.uuid and view.held >= compared.held):
            raise overtaken(session, f"{name} was rolled back or created again")
        last, nearest = view.latest, view.nearest.own if view.nearest else None
        own = SnapshotRecord(
            stored_offset=end,
            commit_id=str(uuid.uuid4()),
            # Of what the head has: a tag that was left behind by a roll back promises more.
            valid_through_ms=nearest.valid_through_ms if nearest else None,
            batches=(),
            counts={},
            last_event_id="",
            control_topic_id=session.identity.control_topic_id,
            cluster_id=session.identity.cluster_id,
            given_up=BEFORE if last and last.given_up else (),
        )
        said = to_summary(session.keys, own)
        outcome = session.lake_of(name).put(table, lambda said=said: [Step([], said)])
        if not isinstance(outcome, Exception):
            return
        lost_to = outcome
        back_off(attempt_number)
    raise gave_up(name, lost_to)


def _topic_ids(session: Session, accounts: Accounts, topics: Collection[str]) -> dict[str, str]:
    """Those that the ledger's rows are of; of a topic that it has no row of, nothing was read."""
    unread = [topic for topic in topics if topic not in accounts.topic_ids]
    now = describe_topics(session.admin, unread, timeout_s=ADMIN_TIMEOUT_S) if unread else {}
    known = {topic: topic_id for topic, topic_id in accounts.topic_ids.items() if topic in topics}
    return known | {name: topic.topic_id for name, topic in now.items()}


def _checkpoint(
    session: Session,
    accounts: Accounts,
    views: Mapping[str, TableView],
    positions: Offsets,
    batch_id: str,
    end: int,
) -> TableCheckpoint:
    """What stands for every event below `end`; answers and a pause that could still be read go on."""
    state, mine = session.log.state, session.new_binding()
    topics = set(session.pipeline.topics)
    promised = [(view.latest.valid_through_ms if view.latest else None) or 0 for view in views.values()]
    return TableCheckpoint(
        **standing(mine, state),
        pipeline_id=state.bound.pipeline_id if state.bound else mine.pipeline_id,
        up_to_offset=end,
        last_complete_batch_id=batch_id,
        positions=offsets_to_dense({at: offset for at, offset in positions.items() if at.topic in topics}),
        topic_ids=_topic_ids(session, accounts, topics),
        # Whatever VTTS was promised is below; it goes on once every partition has been read again.
        through_ms=offsets_to_dense(dict.fromkeys((at for at in positions if at.topic in topics), UNREAD)),
        reported={name: {view.uuid: end} for name, view in views.items()},
        open_findings=(),
        # What is read again may be missing in all tables but the one that promises most, which goes on with its own.
        valid_through_ms=min(promised, default=0),
        begins=offsets_to_dense(accounts.begins),
        former_positions=offsets_to_dense({at: offset for at, offset in positions.items() if at.topic not in topics}),
        former_topic_ids={topic: i for topic, i in accounts.topic_ids.items() if topic not in topics},
        batches=len(accounts.batches),
        delete_below=end,
    )

"""Answers to findings on positions: restore, accept, skip, restart.

Each moves offsets by the one publisher: fence, read, decide on what was read, one transaction. Crash points (the whole
table is in docs/design.md):

    resolve.after-files     a ledger file that nobody names; nothing has moved (accept, skip, restart)
    publish.*               positions, log and ledger say the same, before or after
    resolve.after-effect    the finding is answered and no RESOLVED says so; `calve resume` makes the sensor go on
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from calve.sink_core.control import checks
from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.errors import FindingError
from calve.sink_core.findings import POSITIONS_BEYOND_END
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import describe_topics, end_offsets, existing_topic_ids, log_starts
from calve.sink_core.offsets import NO_TOKEN, OffsetRange, Offsets, Position, Positions, TopicPartition
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve.jump import Jump, jump
from calve.sink_core.tables.log.state import CommitState


def restore(session: Session, found: FindingError) -> Answer:
    """Put back the positions of the last publish, with a mark by which every plan in progress is stale."""
    state = session.log.state
    there = existing_topic_ids(session.admin, state.topic_ids, timeout_s=ADMIN_TIMEOUT_S)
    # Also of those taken out of the pipeline file: put in again they go on from there.
    wanted = state.kept(there)
    now = session.group.positions(wanted)
    changed = {at: offset for at, offset in wanted.items() if at not in now or now[at].offset != offset}
    if found.finding == POSITIONS_BEYOND_END.name and not changed:
        raise no_answer(
            found,
            "restore",
            "the positions are those of the last publish: the topic has lost its end. Records that are written up to "
            "there would not be read; delete and create the topic, then choose restart",
        )
    batch_id, mark = state.last_batch_id or "", str(uuid.uuid4())
    positions = {at: Position(offset, batch_id).given_up(mark) for at, offset in wanted.items()}
    # A range job that was planned before must not find its token as it was, also where there was none.
    token = session.publisher.token
    before = session.group.positions([token]).get(token, NO_TOKEN)
    positions[token] = Position(before.offset, f"restored-{mark}")

    def decide(read: Positions, after_fence: CommitState) -> Decision:
        if any(position.metadata.endswith(mark) for position in read.values()):
            return Decision(Verdict.ALREADY_PUBLISHED, "an earlier try landed")
        if after_fence.last_batch_id != batch_id:
            return Decision(Verdict.STALE, f"batch {after_fence.last_batch_id} has been published since")
        if checks.positions(read, there, after_fence) is None:
            return Decision(Verdict.STALE, "the positions are those of the last publish")
        return Decision(Verdict.PUBLISH, "nothing was published since")

    def carry_out() -> Lines:
        decision = session.publisher.publish(decide, [], positions)
        if decision.verdict is Verdict.STALE:
            raise overtaken(session, decision.why)
        return (
            f"{len(wanted):,} positions are those of batch {batch_id} again; batches in progress are planned again",
        )

    lines = tuple(f"{at}: {_now(now, at)} → {offset:,}" for at, offset in sorted(changed.items()))
    return Answer(lines or (f"{len(wanted):,} positions get the id of batch {batch_id} again",), carry_out)


def accept(session: Session, found: FindingError) -> Answer:
    """Go on from where somebody moved the positions to; the offsets jumped over count as lost."""
    state = session.log.state
    stored = _stored(session, state)
    now = session.group.positions([*stored, session.publisher.token])
    if any(at not in now or now[at].offset < offset for at, offset in stored.items()):
        raise no_answer(found, "accept", "positions were moved back, or are missing: records would be read twice")
    ends = end_offsets(session.admin, stored, timeout_s=ADMIN_TIMEOUT_S)
    beyond = [f"{at} at {now[at].offset}, the end is {end}" for at, end in sorted(ends.items()) if now[at].offset > end]
    if beyond:
        raise no_answer(found, "accept", f"a position lies beyond the end of the log: {beyond[0]}")
    moves = tuple(OffsetRange(*at, offset, now[at].offset) for at, offset in sorted(stored.items()))
    return _jump(session, Jump(state.last_batch_id or "", moves, _topic_ids(session), now))


def skip(session: Session, found: FindingError) -> Answer:
    """Go on at the topic's log start; the offsets that retention deleted unread count as lost."""
    state = session.log.state
    stored = _stored(session, state)
    now = session.group.positions([*stored, session.publisher.token])
    starts = log_starts(session.admin, stored, timeout_s=ADMIN_TIMEOUT_S)
    moves = tuple(skipped(stored, starts, topic=found.subject))
    return _jump(session, Jump(state.last_batch_id or "", moves, _topic_ids(session), now))


def skipped(stored: Offsets, log_starts: Offsets, *, topic: str) -> Iterable[OffsetRange]:
    """Ranges from the positions to the log starts of a topic's partitions, where these lie above. Pure."""
    for at, offset in sorted(stored.items()):
        yield OffsetRange(*at, offset, max(offset, log_starts[at]) if at.topic == topic else offset)


def restart(session: Session, found: FindingError) -> Answer:
    """Read the topics that were created again from their beginnings; the other topics go on where they are.

    All such topics at once: a publish names the position of every partition. What retention has deleted of them by now
    counts as lost: a batch whose events are gone may have read it.
    """
    state = session.log.state
    last = state.last_publish.topic_ids if state.last_publish else {}
    topics = describe_topics(session.admin, session.source_topics(), timeout_s=ADMIN_TIMEOUT_S)
    new = {name for name, topic in topics.items() if last.get(name, topic.topic_id) != topic.topic_id}
    begins = log_starts(
        session.admin, [at for name in new for at in topics[name].all_partitions], timeout_s=ADMIN_TIMEOUT_S
    )
    stay = {at: offset for at, offset in _stored(session, state).items() if at.topic not in new}
    now = session.group.positions([*stay, *begins, session.publisher.token])
    differ = [at for at, offset in sorted(stay.items()) if at not in now or now[at].offset != offset]
    if differ:
        at = differ[0]
        why = f"{at} is at {_now(now, at)}, the last publish put it at {stay[at]:,}"
        raise no_answer(found, "restart", f"other positions are wrong as well: {why}; put them back first")
    moves = tuple(OffsetRange(*at, stay.get(at, 0), offset) for at, offset in sorted((stay | begins).items()))
    wanted = Jump(state.last_batch_id or "", moves, {n: t.topic_id for n, t in topics.items()}, now, frozenset(begins))

    def carry_out() -> Lines:
        batch_id = jump(session, wanted)
        return (f"batch {batch_id} begins {', '.join(sorted(new))} anew; rows of the old records stay in the tables",)

    before = state.positions() or {}
    lines = (
        f"{at}: {before.get(at, 'none')} of topic id {last[at.topic]} → {begin:,} of topic id "
        f"{topics[at.topic].topic_id}{f', {begin:,} offsets count as lost' if begin else ''}"
        for at, begin in sorted(begins.items())
    )
    return Answer(tuple(lines), carry_out)


def _jump(session: Session, wanted: Jump) -> Answer:
    def carry_out() -> Lines:
        batch_id = jump(session, wanted)
        return (f"batch {batch_id} has {sum(wanted.lost.values()):,} offsets as lost; the ledger names them",)

    lines = (f"{r.at}: {r.start:,} → {r.end:,}, {r.span:,} offsets count as lost" for r in wanted.moves if r.span)
    return Answer(tuple(lines), carry_out)


def _stored(session: Session, state: CommitState) -> Offsets:
    """The positions of the last publish, of topics that are in the pipeline file."""
    topics = set(session.pipeline.topics)
    return {at: offset for at, offset in (state.positions() or {}).items() if at.topic in topics}


def _topic_ids(session: Session) -> dict[str, str]:
    topics = describe_topics(session.admin, session.source_topics(), timeout_s=ADMIN_TIMEOUT_S)
    return {name: topic.topic_id for name, topic in topics.items()}


def _now(positions: Positions, at: TopicPartition) -> str:
    return f"{positions[at].offset:,}" if at in positions else "none"

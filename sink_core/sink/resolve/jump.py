"""A batch that reads nothing: it moves positions over offsets that nobody will read, and says so in the ledger.

Published like every batch, so that positions, log and ledger agree after it. Crash points are those of publish; until
then the ledger's file is an orphan and nothing has moved.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from calve.sink_core.control.answers import overtaken
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.commit.schema_change import change_schema
from calve.sink_core.iceberg.create.tables import ensure_tables, load_if_there
from calve.sink_core.iceberg.write.outputs import output_of, write_ledger
from calve.sink_core.offsets import NO_TOKEN, OffsetRange, Offsets, Position, Positions, TopicPartition
from calve.sink_core.sink.loop.complete import data_complete, data_written
from calve.sink_core.sink.loop.planning import check_topics
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.batch import BatchPlan, TableOutput, WrittenBatch
from calve.sink_core.tables.internal import LEDGER_SCHEMA
from calve.sink_core.tables.log.events import StartCommit
from calve.sink_core.tables.log.state import CommitState


@dataclass(frozen=True, slots=True)
class Jump:
    """Where positions go without reading.

    `seen` are the group's positions it was planned on, and the token: giving up marks that where positions are gone.

    `moves` holds every partition of the last publish, those that stay where they are included; `begins` are partitions
    that begin anew, at the end of their range. `predecessor` as in a plan.
    """

    predecessor: str
    moves: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str]
    seen: Positions
    begins: frozenset[TopicPartition] = frozenset()

    @property
    def lost(self) -> dict[TopicPartition, int]:
        """Offsets passed over unread, by partition; those with any."""
        return {r.at: r.span for r in self.moves if r.span}

    def plan(self, batch_id: str, broker_time_ms: int) -> BatchPlan:
        return BatchPlan(batch_id, self.predecessor, self.moves, (), self.topic_ids, broker_time_ms, 0)

    def counts(self, tables: tuple[str, ...]) -> tuple[PartitionCounts, ...]:
        """The ledger's rows: of each partition that moves or begins anew."""
        return tuple(
            PartitionCounts(*r.at, r.start, r.end, written=dict.fromkeys(tables, 0), lost=r.span)
            for r in self.moves
            if r.span or r.at in self.begins
        )

    def decide(self, batch_id: str, found: Positions, state: CommitState) -> Decision:
        """Whether nothing has changed since the jump was planned; what is given was read after the fence."""
        if batch_id in state.batches:
            return Decision(Verdict.ALREADY_PUBLISHED, f"batch {batch_id} is in the log; an earlier try landed")
        if state.last_batch_id != self.predecessor:
            return Decision(Verdict.STALE, f"batch {state.last_batch_id} has been published since")
        others = self.seen.keys() | found.keys() if state.rules.answer_compares_the_token else set[TopicPartition]()
        for at in sorted({r.at for r in self.moves} | others):
            if found.get(at) != self.seen.get(at):
                return Decision(Verdict.STALE, f"{at}: the position was {_text(self.seen, at)}, is {_text(found, at)}")
        return Decision(Verdict.PUBLISH, "nothing has changed since")


def jump(session: Session, wanted: Jump) -> str:
    """Publish the jump; returns its batch id. Raises RetriableError if anything has changed since it was planned,
    FindingError if a topic has another UUID by then.
    """
    batch_id, pipeline, token = str(uuid.uuid4()), session.pipeline, session.publisher.token
    started = session.log.append(
        StartCommit(
            pipeline_id=session.pipeline_id,
            batch_id=batch_id,
            predecessor=wanted.predecessor,
            file_prefix=f"calve-{batch_id}",
            config_fingerprint=pipeline.config_fingerprint,
        )
    )
    plan = wanted.plan(batch_id, started.broker_time_ms)
    batch = _written(session, plan, wanted.counts(tuple(table.name for table in pipeline.tables)))
    reach("resolve.after-files")
    complete = data_complete(
        batch,
        pipeline_id=session.pipeline_id,
        high_watermarks=_ends(plan),
        timestamp_types={},
        ledger_table=pipeline.ledger_table,
    )

    def after_fence(found: Positions, state: CommitState) -> Decision:
        decision = wanted.decide(batch_id, found, state)
        if decision.verdict is Verdict.PUBLISH:
            check_topics(session, plan.topic_ids)
        return decision

    # A range job that was planned before must not find its token as it was.
    positions = {at: Position(end, batch_id) for at, end in _ends(plan).items()}
    positions[token] = Position(wanted.seen.get(token, NO_TOKEN).offset + 1, batch_id)
    events = [*data_written(batch, session.pipeline_id), complete]
    decision = session.publisher.publish(after_fence, events, positions)
    if decision.verdict is Verdict.STALE:
        raise overtaken(session, decision.why)
    session.log.refresh_to_end()
    return batch_id


def _ends(plan: BatchPlan) -> Offsets:
    return {r.at: r.end for r in plan.ranges}


def _written(session: Session, plan: BatchPlan, counts: tuple[PartitionCounts, ...]) -> WrittenBatch:
    """The batch's only files: the ledger's."""
    name = session.pipeline.ledger_table
    session.committer().load_checked(name)
    ensure_tables(session.catalog, session.pipeline, dict, names=(name,))
    # A ledger of an earlier version lacks columns.
    change_schema(session.catalog, name, LEDGER_SCHEMA, ("add_column",))
    ledger = load_if_there(session.catalog, name)
    if ledger is None:
        raise overtaken(session, f"{name} was dropped")
    files = write_ledger(plan, counts, ledger) if counts else []
    others = [TableOutput(other, "", 0) for other in session.pipeline.table_names if other != name]
    return WrittenBatch(plan, (*others, output_of(plan.batch_id, name, ledger, files)), counts)


def _text(positions: Positions, at: TopicPartition) -> str:
    return str(positions[at].offset) if at in positions else "none"

"""Many published batches of one record each, made by the product's own writers, events and publisher.

What a run does for each (plan, fence, transaction) is left out: files and manifests are a batch's own, a transaction
has the events of many. Nobody who reads sees the difference.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa

from sink_core.batch import BatchPlan, PartitionCounts, WrittenBatch
from sink_core.control.complete import LOG_APPEND_TIME, data_complete, data_written
from sink_core.control.decision import Decision, Verdict
from sink_core.control.events import Event
from sink_core.offsets import OffsetRange, Position, TopicPartition
from sink_core.session import Session
from sink_core.tables.arrow import arrow_schema
from sink_core.tables.outputs import output_of, write_ledger
from sink_core.tables.writer import TableWriter

_IN_A_TRANSACTION = 250


def publish(session: Session, table: str, start: int, end: int) -> None:
    """Publish the records `[start, end)` of the one partition of a pipeline, which has published those before them."""
    at = TopicPartition(session.pipeline.topics[0], 0)
    written = list(_written(session, table, at, start, end))
    for first in range(0, len(written), _IN_A_TRANSACTION):
        some = written[first : first + _IN_A_TRANSACTION]
        events = [event for batch in some for event in _events(session, batch, at, end)]
        last = some[-1].plan
        decision = Decision(Verdict.PUBLISH, "the only one at work")
        positions = {at: Position(last.ranges[0].end, last.batch_id)}
        session.publisher.publish(lambda _positions, _state, it=decision: it, events, positions)


def _events(session: Session, batch: WrittenBatch, at: TopicPartition, end: int) -> list[Event]:
    complete = data_complete(
        batch,
        pipeline_id=session.pipeline_id,
        high_watermarks={at: end},
        timestamp_types={at.topic: LOG_APPEND_TIME},
        ledger_table=session.pipeline.ledger_table,
    )
    return [*data_written(batch, session.pipeline_id), complete]


def _written(session: Session, table: str, at: TopicPartition, start: int, end: int) -> Iterator[WrittenBatch]:
    pipeline, state = session.pipeline, session.log.state
    data, ledger, dead = (
        session.catalog.load_table(n) for n in (table, pipeline.ledger_table, pipeline.dead_letter_table)
    )
    schema, predecessor = arrow_schema(data.metadata.schema()), state.last_batch_id or ""
    for offset in range(start, end):
        part = OffsetRange(*at, offset, offset + 1)
        plan = BatchPlan(str(uuid.uuid4()), predecessor, (part,), ((part,),), state.topic_ids, 1_700_000_000_000, 1)
        row = {"id": offset, "text": "", "_kafka": {**at._asdict(), "offset": offset, "timestamp": None}}
        writer = TableWriter(data.io, data.metadata, f"calve-{plan.batch_id}")
        writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
        counts = [PartitionCounts(*at, offset, offset + 1, records=1, value_bytes=1, written={table: 1})]
        outputs = (
            output_of(plan.batch_id, table, data, writer.close()),
            output_of(plan.batch_id, pipeline.ledger_table, ledger, write_ledger(plan, counts, ledger)),
            output_of(plan.batch_id, pipeline.dead_letter_table, dead, []),
        )
        yield WrittenBatch(plan, outputs, tuple(counts))
        predecessor = plan.batch_id

"""Many published batches of one record each, made by the product's own writers, events and publisher.

What a run does for each (plan, fence, transaction) is left out: files and manifests are a batch's own, a transaction
has the events of many. Nobody who reads sees the difference.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from calve.sink_core.config.load import load
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import Event
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.write.outputs import output_of, write_ledger
from calve.sink_core.iceberg.write.writer import TableWriter
from calve.sink_core.offsets import OffsetRange, Position, TopicPartition
from calve.sink_core.records.columns.arrow import arrow_schema
from calve.sink_core.sink.loop.complete import LOG_APPEND_TIME, data_complete, data_written
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.batch import BatchPlan, WrittenBatch

_IN_A_TRANSACTION = 250


def publish(session: Session, table: str, start: int, end: int) -> None:
    """Publish the records `[start, end)` of the one partition of a pipeline, which has published those before them."""
    at = TopicPartition(session.pipeline.topics[0], 0)
    written = _all_written(session, table, at, start, end)
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


def _all_written(session: Session, table: str, at: TopicPartition, start: int, end: int) -> list[WrittenBatch]:
    """One batch for each record, each after the one before it; written by a process for each core."""
    state, ids = session.log.state, [str(uuid.uuid4()) for _ in range(start, end)]
    predecessors = [state.last_batch_id or "", *ids]
    plans = [
        BatchPlan(one, before, (part,), ((part,),), dict(state.topic_ids), 1_700_000_000_000, 1)
        for one, before, offset in zip(ids, predecessors, range(start, end), strict=False)
        for part in (OffsetRange(*at, offset, offset + 1),)
    ]
    pieces = [plans[first : first + _IN_A_TRANSACTION] for first in range(0, len(plans), _IN_A_TRANSACTION)]
    write = partial(_written, session.pipeline.path, table)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return [batch for piece in pool.map(write, pieces) for batch in piece]


def _written(file: Path, table: str, plans: Sequence[BatchPlan]) -> list[WrittenBatch]:
    pipeline = load(file)
    with closing(open_catalog(pipeline.catalog)) as catalog:
        names = (table, pipeline.ledger_table, pipeline.dead_letter_table)
        data, ledger, dead = (catalog.load_table(name) for name in names)
        return [_batch(plan, data, ledger, dead) for plan in plans]


def _batch(plan: BatchPlan, data: Table, ledger: Table, dead: Table) -> WrittenBatch:
    [part], name = plan.ranges, ".".join(data.name())
    kafka = {"topic": part.topic, "partition": part.partition, "offset": part.start, "timestamp": None}
    row = {"id": part.start, "text": "", "_kafka": kafka}
    writer = TableWriter(data.io, data.metadata, f"calve-{plan.batch_id}")
    writer.write(pa.RecordBatch.from_pylist([row], schema=arrow_schema(data.metadata.schema())))
    counts = [
        PartitionCounts(part.topic, part.partition, part.start, part.end, records=1, value_bytes=1, written={name: 1})
    ]
    outputs = (
        output_of(plan.batch_id, name, data, writer.close()),
        output_of(plan.batch_id, ".".join(ledger.name()), ledger, write_ledger(plan, counts, ledger)),
        output_of(plan.batch_id, ".".join(dead.name()), dead, []),
    )
    return WrittenBatch(plan, outputs, tuple(counts))

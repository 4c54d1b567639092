"""What the next batch would be, without a trace: nothing is written, nobody is fenced."""

from __future__ import annotations

from sink_core.batch import BatchPlan
from sink_core.kafka.clients import ADMIN_TIMEOUT_S
from sink_core.kafka.source import bytes_per_record, sample
from sink_core.plan import Limits, plan_batch
from sink_core.planning import Planner
from sink_core.session import Session

BATCH_ID = "preview"
_SAMPLE_RECORDS = 200


def preview(session: Session, *, max_tasks: int) -> BatchPlan | None:
    """The plan a run would make now, None if there is nothing to read; bytes per record are from a sample.

    The control log must exist and have been read (`session.read_only`). Raises FindingError if a run would stop.
    """
    source = Planner(session, max_tasks=max_tasks).look()
    batch, kafka = session.pipeline.config.batch, session.pipeline.kafka.properties
    costs = {t: bytes_per_record(sample(kafka, t, _SAMPLE_RECORDS, timeout_s=ADMIN_TIMEOUT_S)) for t in source.topics}
    return plan_batch(
        batch_id=BATCH_ID,
        predecessor=next((position.batch_id for position in source.positions.values()), ""),
        starts=source.next_offsets(),
        ends=source.ends,
        bytes_per_record=costs,
        limits=Limits(batch.max_records, batch.max_bytes, max_tasks, batch.min_task_bytes),
        topic_ids=source.topic_ids,
        broker_time_ms=-1,
    )

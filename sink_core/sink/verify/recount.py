"""The ledger's record counts against what Kafka still delivers for the same ranges."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AdminClient

from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.recount import compacted, delivered_offsets
from calve.sink_core.kafka.source import end_offsets, log_starts
from calve.sink_core.offsets import OffsetRange, TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.ledger.stored_offsets import OffsetSets, compare_delivered
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.proof import Evidence


def recount(session: Session, rows: Iterable[LedgerRow], covered: OffsetSets, evidence: Evidence) -> None:
    """Read every covered range again that Kafka still holds, and compare the number of records."""
    wanted = _retained(session.admin, covered, evidence)
    delivered = delivered_offsets(session.pipeline.kafka.properties, wanted, evidence.progress)
    # Asked after the read: what retention took away meanwhile is not compared.
    starts = log_starts(session.admin, delivered, timeout_s=ADMIN_TIMEOUT_S)
    for row in rows:
        compare_delivered(delivered, starts, row, evidence)


def _retained(admin: AdminClient, covered: OffsetSets, evidence: Evidence) -> list[OffsetRange]:
    partitions = _countable(admin, sorted(at for at in covered if covered[at]), evidence)
    starts = log_starts(admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
    ends = end_offsets(admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
    return [
        OffsetRange(*at, start, end)
        for at in partitions
        if (start := max(starts[at], covered[at].min())) < (end := min(ends[at], covered[at].max() + 1))
    ]


def _countable(admin: AdminClient, partitions: list[TopicPartition], evidence: Evidence) -> list[TopicPartition]:
    """Those of topics that exist and from which single records do not vanish."""
    topics = {at.topic for at in partitions}
    existing = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    gone, found = topics - existing.keys(), topics & existing.keys()
    thinned = compacted(admin, found, timeout_s=ADMIN_TIMEOUT_S) if found else set[str]()
    for topic in sorted(gone):
        evidence.skipped(topic, "recounting its records: the topic does not exist any more")
    for topic in sorted(thinned):
        evidence.skipped(topic, "recounting its records: the topic is compacted")
    return [at for at in partitions if at.topic in found - thinned and at.partition in existing[at.topic].partitions]

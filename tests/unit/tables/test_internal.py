"""Rows of the ledger and of the dead letters hold all that is known."""

from __future__ import annotations

from datetime import UTC, datetime

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.tables.batch import BatchPlan
from calve.sink_core.tables.internal import DEAD_LETTER_SCHEMA, LEDGER_SCHEMA, DeadLetter, dead_letter_rows, ledger_rows

MOMENT_MS = 1_717_149_600_123
MOMENT = datetime(2024, 5, 31, 10, 0, 0, 123000, tzinfo=UTC)


def test_a_ledger_row_adds_up_to_its_range() -> None:
    ranges = (OffsetRange("t", 0, 5, 15), OffsetRange("t", 1, 3, 3))
    plan = BatchPlan("b2", "b1", ranges, (ranges[:1],), {"t": "id-of-t"}, MOMENT_MS, 100)
    counts = PartitionCounts("t", 0, 5, 15, 8, 2, 1, 0, 1, 640, MOMENT_MS, 1, {"ns.a": 6, "ns.b": 6})
    idle = PartitionCounts("t", 1, 3, 3)
    first, second = ledger_rows(plan, [counts, idle]).to_pylist()
    assert first == {
        "batch_id": "b2",
        "predecessor": "b1",
        "planned_at": MOMENT,
        "topic": "t",
        "topic_id": "id-of-t",
        "partition": 0,
        "start_offset": 5,
        "end_offset": 15,
        "records": 8,
        "gaps": 2,
        "tombstones": 1,
        "filtered": 0,
        "dead_lettered": 1,
        "value_bytes": 640,
        "max_timestamp": MOMENT,
        "timestamp_type": 1,
        "written": [("ns.a", 6), ("ns.b", 6)],
        "lost": 0,
        "unrouted": 0,
        "left_out": [],
    }
    assert (second["max_timestamp"], second["written"]) == (None, [])
    assert first.keys() == {field.name for field in LEDGER_SCHEMA.fields}


def test_a_dead_letter_keeps_every_byte_of_the_record() -> None:
    headers = [("trace", b"\x00\xff"), ("trace", None)]
    letter = DeadLetter("a: not a number", "fit", "t", 3, 7, MOMENT_MS, None, b"\xff{", headers)
    bare = DeadLetter("not JSON", "decode", "t", 3, 8, -1, b"k", b"", None)
    first, second = dead_letter_rows("b2", [letter, bare]).to_pylist()
    assert first == {
        "batch_id": "b2",
        "error": "a: not a number",
        "stage": "fit",
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": MOMENT,
        "key": None,
        "value": b"\xff{",
        "headers": [{"key": "trace", "value": b"\x00\xff"}, {"key": "trace", "value": None}],
    }
    assert (second["timestamp"], second["headers"], second["value"]) == (None, [], b"")
    assert first.keys() == {field.name for field in DEAD_LETTER_SCHEMA.fields}

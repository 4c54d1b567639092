"""A written batch becomes the events that publish it, with what may be promised about time."""

from __future__ import annotations

import pytest

from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka.source import Silent
from calve.sink_core.offsets import NOWHERE, OffsetRange
from calve.sink_core.sink.loop.complete import LOG_APPEND_TIME, data_complete, data_written, through_ms
from calve.sink_core.tables.batch import BatchPlan, TableOutput, WrittenBatch
from calve.sink_core.tables.log.events import DataComplete
from calve.sink_core.tables.log.state import UNREAD
from tests.codes import says
from tests.unit.tables.log.build import PIPELINE_ID, at, manifest

CREATE_TIME = 1
BROKER = 1_000
LEDGER = "air.calve_ledger"
OUTPUTS = (
    TableOutput("air.b", "uuid-b", 3, (manifest("b-0.avro", rows=4, files=2), manifest("b-1.avro", rows=1))),
    TableOutput("air.a", "uuid-a", 0),
    TableOutput(LEDGER, "uuid-l", 0, (manifest("ledger.avro", rows=3),)),
)
COUNTS = (
    PartitionCounts(
        "x",
        0,
        0,
        10,
        records=8,
        gaps=2,
        tombstones=1,
        filtered=2,
        dead_lettered=3,
        value_bytes=80,
        max_timestamp_ms=700,
    ),
    PartitionCounts("y", 0, 0, 5, records=5, value_bytes=50, max_timestamp_ms=600),
    PartitionCounts("x", 2, 5, 6, records=1, value_bytes=7, max_timestamp_ms=BROKER + 1),
)
RANGES = (
    OffsetRange("x", 0, 0, 10),
    OffsetRange("x", 1, 4, 4),
    OffsetRange("x", 2, 5, 6),
    OffsetRange("y", 0, 0, 5),
)


def batch(outputs: tuple[TableOutput, ...] = OUTPUTS) -> WrittenBatch:
    return WrittenBatch(
        BatchPlan("b2", "b1", RANGES, (RANGES,), {"x": "id-x", "y": "id-y"}, BROKER, 9), outputs, COUNTS
    )


def completed(
    types: dict[str, int], outputs: tuple[TableOutput, ...] = OUTPUTS, silent: Silent | None = None
) -> DataComplete:
    return data_complete(
        batch(outputs),
        pipeline_id=PIPELINE_ID,
        high_watermarks={at(0, "x"): 10, at(1, "x"): 4, at(2, "x"): 7, at(0, "y"): 5},
        timestamp_types=types,
        ledger_table=LEDGER,
        silent=silent,
    )


def read(max_timestamp_ms: int) -> PartitionCounts:
    return PartitionCounts("x", 0, 0, 10, records=10, max_timestamp_ms=max_timestamp_ms)


@pytest.mark.parametrize(
    ("counts", "caught_up", "log_append_time", "broker_time_ms", "expected"),
    [
        pytest.param(read(700), True, True, BROKER, BROKER, id="caught up: what comes later is later"),
        pytest.param(None, True, True, BROKER, BROKER, id="idle and caught up: the same"),
        pytest.param(read(700), False, True, BROKER, 700, id="not caught up: the last record read"),
        pytest.param(None, False, True, BROKER, UNREAD, id="records waiting and none read: no promise"),
        pytest.param(read(-1), False, True, BROKER, UNREAD, id="records waiting, only gaps read: no promise"),
        pytest.param(read(700), True, True, -1, 700, id="no broker time: the last record read"),
        pytest.param(None, True, True, -1, NOWHERE, id="no broker time, nothing read: nothing to say"),
        pytest.param(read(700), True, False, BROKER, 700, id="create time caught up: the last record read"),
        pytest.param(read(700), False, False, BROKER, 700, id="create time not caught up: the last record read"),
        pytest.param(read(BROKER + 1), True, False, BROKER, BROKER, id="create time in the future: capped"),
        pytest.param(read(BROKER + 1), True, False, -1, BROKER + 1, id="create time, no clock to cap with"),
        pytest.param(None, True, False, BROKER, NOWHERE, id="create time, idle: nothing to say"),
        pytest.param(read(-1), True, False, BROKER, NOWHERE, id="create time, only gaps: nothing to say"),
        pytest.param(None, False, False, BROKER, UNREAD, id="create time, records waiting: no promise"),
    ],
)
def test_a_partition_is_read_through(
    counts: PartitionCounts | None, caught_up: bool, log_append_time: bool, broker_time_ms: int, expected: int
) -> None:
    found = through_ms(counts, caught_up=caught_up, log_append_time=log_append_time, broker_time_ms=broker_time_ms)
    assert found == expected


def test_every_table_is_named_and_those_without_rows_get_no_files() -> None:
    events = data_written(batch(), PIPELINE_ID)
    assert [(e.table, e.table_uuid, e.schema_id, e.rows) for e in events] == [
        ("air.b", "uuid-b", 3, 5),
        (LEDGER, "uuid-l", 0, 3),
    ]
    assert {e.batch_id for e in events} == {"b2"}
    assert completed({}).tables == ("air.a", "air.b", LEDGER)


def test_all_positions_move_to_the_ends_idle_partitions_included() -> None:
    event = completed({})
    assert event.positions == {"x": (10, 4, 6), "y": (5,)}
    assert (event.batch_id, event.predecessor, event.kind, event.moves_positions) == ("b2", "b1", "batch", True)
    assert event.topic_ids == {"x": "id-x", "y": "id-y"}


def test_the_totals_are_those_of_all_partitions_and_tables() -> None:
    event = completed({})
    assert event.totals == {
        "records": 14,
        "gaps": 2,
        "tombstones": 1,
        "filtered": 2,
        "dead_lettered": 3,
        "value_bytes": 137,
        "lost": 0,
        "unrouted": 0,
        "offsets": 16,
        "files": 4,
    }
    assert event.records_by_topic == {"x": 9, "y": 5}
    assert event.value_bytes_by_topic == {"x": 87, "y": 50}


def test_time_is_promised_per_topic_by_its_own_kind_of_timestamp() -> None:
    event = completed({"x": LOG_APPEND_TIME, "y": CREATE_TIME})
    assert event.through_ms == {"x": (BROKER, BROKER, BROKER), "y": (600,)}
    assert event.through_is_estimate


def test_a_partition_read_to_its_lso_below_open_transactions_is_not_caught_up() -> None:
    event = completed({"x": LOG_APPEND_TIME, "y": LOG_APPEND_TIME}, OUTPUTS)
    assert event.through_ms["x"][2] == BROKER
    below = data_complete(
        WrittenBatch(batch().plan, OUTPUTS, (PartitionCounts("x", 0, 0, 10, records=8, max_timestamp_ms=700),)),
        pipeline_id=PIPELINE_ID,
        high_watermarks={at(0, "x"): 11, at(1, "x"): 5, at(2, "x"): 6, at(0, "y"): 5},
        timestamp_types={"x": LOG_APPEND_TIME, "y": LOG_APPEND_TIME},
        ledger_table=LEDGER,
    )
    assert below.through_ms == {"x": (700, UNREAD, BROKER), "y": (BROKER,)}


def test_a_silent_partition_contributes_nothing_though_it_stands_at_its_position() -> None:
    gone = Unreachable("no leader")
    event = data_complete(
        batch(),
        pipeline_id=PIPELINE_ID,
        high_watermarks={at(0, "x"): 10, at(2, "x"): 7, at(0, "y"): 5},
        timestamp_types={"x": LOG_APPEND_TIME, "y": LOG_APPEND_TIME},
        ledger_table=LEDGER,
        silent=Silent(partitions={at(1, "x"): gone}),
    )
    assert event.through_ms == {"x": (BROKER, UNREAD, BROKER), "y": (BROKER,)}
    assert event.positions == {"x": (10, 4, 6), "y": (5,)}
    says(event.silent["x[1]"], gone.code)


@pytest.mark.parametrize(
    "silent",
    [Silent(topics={"z": Unreachable("gone")}), Silent(partitions={at(3, "x"): Unreachable("new, and no leader")})],
    ids=("a topic", "a partition without a position"),
)
def test_beside_what_has_no_position_nothing_is_promised(silent: Silent) -> None:
    assert completed({"x": LOG_APPEND_TIME, "y": LOG_APPEND_TIME}, silent=silent).through_ms == {}


def test_the_promise_is_an_estimate_unless_every_topic_has_broker_time() -> None:
    assert not completed({"x": LOG_APPEND_TIME, "y": LOG_APPEND_TIME}).through_is_estimate
    assert completed({"x": LOG_APPEND_TIME}).through_is_estimate


def test_the_ledgers_manifest_is_named_so_that_the_ledger_can_be_rebuilt() -> None:
    assert completed({}).ledger_manifest == "ledger.avro"
    assert completed({}, OUTPUTS[:2]).ledger_manifest is None

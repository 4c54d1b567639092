"""What a snapshot's summary says comes back, and a snapshot of others says nothing."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.tables.history.record import SnapshotRecord, SummaryKeys, from_summary, to_summary
from tests.unit.iceberg.commit.build import KEYS, own

IDS = st.uuids().map(str)
OWNS = st.builds(
    SnapshotRecord,
    stored_offset=st.integers(0, 2**62),
    commit_id=IDS,
    valid_through_ms=st.none() | st.integers(0, 253_402_300_799_999),
    batches=st.lists(IDS, max_size=4).map(tuple),
    counts=st.dictionaries(IDS, st.integers(0, 2**62), max_size=4),
    last_event_id=IDS,
    control_topic_id=IDS,
    cluster_id=IDS,
    given_up=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=2).map(tuple),
)


@given(ours=OWNS)
def test_a_summary_comes_back_as_it_was_written(ours: SnapshotRecord) -> None:
    summary = to_summary(KEYS, ours)
    assert from_summary(KEYS, summary | {"total-records": "7"}) == ours
    assert all(isinstance(value, str) for value in summary.values())


def test_the_names_are_the_connectors_where_it_has_them() -> None:
    summary = to_summary(KEYS, own(42, valid_through_ms=9))
    assert json.loads(summary["kafka.connect.offsets.calve.prod.flights.control.calve.prod.flights"]) == {"0": 42}
    assert summary["kafka.connect.commit-id"] == "c1"
    assert summary["kafka.connect.valid-through-ts"] == "1970-01-01T00:00:00.009Z"
    assert "kafka.connect.valid-through-ts" not in to_summary(KEYS, own(42))


def test_a_snapshot_of_another_pipeline_is_not_ours() -> None:
    other = SummaryKeys("delays", "calve.prod.delays.control", "calve.prod.delays")
    assert from_summary(other, to_summary(KEYS, own(42))) is None


def test_a_snapshot_of_the_connector_or_of_compaction_is_not_ours() -> None:
    assert from_summary(KEYS, {KEYS.offsets: '{"0": 42}'}) is None
    assert from_summary(KEYS, {"operation": "replace"}) is None


def test_a_producers_timestamp_beyond_the_calendar_does_not_stop_a_commit() -> None:
    summary = to_summary(KEYS, own(42, valid_through_ms=2**62))
    assert summary["kafka.connect.valid-through-ts"] == "9999-12-31T23:59:59.999Z"

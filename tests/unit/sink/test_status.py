from __future__ import annotations

import json
from dataclasses import asdict

from calve.sink_core.control.events import BatchAbandoned, Event
from calve.sink_core.control.status import in_flight
from calve.sink_core.sink.status import last_batch, uncommitted
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.log.events import DataComplete, DataWritten, StartCommit
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState

NOW = 1_000_000


def started(batch_id: str, predecessor: str, at_ms: int = NOW - 5_000) -> StartCommit:
    return StartCommit(
        pipeline_id="p",
        batch_id=batch_id,
        predecessor=predecessor,
        file_prefix="",
        config_fingerprint="",
        written_at_ms=at_ms,
        calve_version="0.1.0",
    )


def completed(batch_id: str, predecessor: str, kind: str = "batch") -> DataComplete:
    return DataComplete(
        pipeline_id="p",
        batch_id=batch_id,
        predecessor=predecessor,
        kind=kind,
        tables=("air.flights",),
        totals={"records": 7, "value_bytes": 700, "tombstones": 2},
        topic_ids={},
        positions={"flights": (7,)},
        through_ms={},
        through_is_estimate=False,
        value_bytes_by_topic={},
        records_by_topic={},
        written_at_ms=NOW,
    )


def wrote(batch_id: str, rows: int, at_ms: int) -> DataWritten:
    ref = ManifestRef("m.avro", 1, "", 0, 0, 1, rows, 1, ())
    return DataWritten(
        pipeline_id="p",
        batch_id=batch_id,
        table="air.flights",
        table_uuid="u",
        schema_id=0,
        manifests=(ref,),
        written_at_ms=at_ms,
    )


def state_of(*events: Event) -> CommitState:
    return SINK.apply_all(CommitState(), enumerate(events))


def test_in_flight_are_batches_that_continue_the_last_publish_and_are_not_published() -> None:
    state = state_of(
        completed("b0", "", "bootstrap"),
        started("dead", "b0"),
        started("b1", "b0"),
        completed("b1", "b0"),
        started("b2", "b1", NOW - 2_000),
    )
    assert [asdict(batch) for batch in in_flight(state, NOW)] == [
        {"batch_id": "b2", "age_s": 2.0, "calve_version": "0.1.0"}
    ]


def test_what_was_given_up_is_not_in_flight_and_what_was_planned_since_is() -> None:
    state = state_of(
        completed("b0", "", "bootstrap"),
        started("b1", "b0"),
        BatchAbandoned(pipeline_id="p", batch_id="b1"),
        started("b2", "b0+mark"),
    )
    assert [batch.batch_id for batch in in_flight(state, NOW)] == ["b2"]


def test_a_bootstrap_is_no_batch() -> None:
    assert last_batch(state_of(completed("b0", "", "bootstrap"))) is None
    shown = last_batch(state_of(completed("b0", "", "bootstrap"), completed("b1", "b0")))
    assert shown is not None
    assert json.loads(json.dumps(asdict(shown))) == {
        "batch_id": "b1",
        "published_at": "1970-01-01T00:16:40.000+00:00",
        "records": 7,
        "value_bytes": 700,
        "unrouted": 0,
        "filtered": 0,
        "dead_lettered": 0,
        "tombstones": 2,
        "written_by": None,
    }
    assert shown.not_stored == {"tombstones": 2}


def test_uncommitted_says_how_much_and_since_when() -> None:
    state = state_of(
        wrote("b1", 5, NOW - 9_000), completed("b1", ""), wrote("b2", 6, NOW - 1_000), completed("b2", "b1")
    )
    pending = uncommitted(state.pending("air.flights", "u", 0), NOW)
    assert (pending.batches, pending.rows, pending.oldest_age_s) == (2, 11, 9.0)
    assert uncommitted(state.pending("air.flights", "u", state.limit), NOW).oldest_age_s is None

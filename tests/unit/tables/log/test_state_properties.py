"""What holds for every log: folded in pieces or whole, and whatever a publisher, a coordinator or a person wrote."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calve.sink_core.control.events import Event, Paused, Resumed
from calve.sink_core.offsets import TopicPartition, dense_to_offsets, offsets_to_dense
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from tests.unit.tables.log.build import (
    PIPELINE_ID,
    TABLE,
    TOPIC,
    UUID,
    bound,
    checkpoint,
    complete,
    log,
    reported,
    written,
)

BATCHES = st.sampled_from([f"b{i}" for i in range(6)])
TABLES = st.sampled_from([TABLE, "air.other"])
UUIDS = st.sampled_from([UUID, "uuid-2"])
DENSE = st.dictionaries(st.sampled_from([TOPIC, "other"]), st.lists(st.integers(-1, 900), min_size=1, max_size=3))
ARRAYS = DENSE.map(lambda dense: {topic: tuple(values) for topic, values in dense.items()})
KINDS = st.sampled_from(["bootstrap", "batch", "range"])
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(bound, pipeline_id=st.sampled_from(["p1", "p2"])),
    st.builds(written, BATCHES, TABLES, UUIDS),
    st.builds(complete, BATCHES, ARRAYS, kind=KINDS, through_ms=ARRAYS),
    st.builds(reported, st.integers(0, 40), TABLES, UUIDS),
    st.builds(
        checkpoint, st.integers(0, 30), positions=ARRAYS, through_ms=ARRAYS, paused_by=st.none() | st.just("ana")
    ),
    st.just(Paused(pipeline_id=PIPELINE_ID, by="ana", reason="")),
    st.just(Resumed(pipeline_id=PIPELINE_ID, by="ana")),
)
LOGS = st.lists(EVENTS, max_size=25)
OFFSETS = st.dictionaries(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 40)), st.integers(0, 2**62))


@given(events=LOGS, cut=st.integers(0, 25))
def test_a_log_read_in_two_pieces_says_what_it_says_read_whole(events: list[Event], cut: int) -> None:
    state = log(*events[:cut])
    assert SINK.apply_all(state, list(enumerate(events))[cut:]) == log(*events)


@given(events=LOGS, stored=st.integers(0, 25))
def test_what_a_table_lacks_lies_between_its_stored_offset_and_the_limit(events: list[Event], stored: int) -> None:
    state = log(*events)
    for logged in state.pending(TABLE, UUID, stored):
        assert stored <= logged.offset < state.limit <= state.next_offset
        assert (logged.event.table, logged.event.table_uuid) == (TABLE, UUID)
        assert logged.event.batch_id in state.batches


@given(events=LOGS)
def test_committing_to_the_limit_leaves_nothing_and_loses_nothing(events: list[Event]) -> None:
    """A table that commits after every event has the same as one that commits once at the end."""
    state, stored, taken = CommitState(), 0, list[int]()
    for offset, event in enumerate(events):
        SINK.apply(state, offset, event)
        taken += [logged.offset for logged in state.pending(TABLE, UUID, stored)]
        stored = max(stored, state.limit)
        assert state.pending(TABLE, UUID, stored) == []
    assert taken == [logged.offset for logged in state.pending(TABLE, UUID, 0)]


@given(events=LOGS)
def test_vtts_never_goes_back(events: list[Event]) -> None:
    state = log(*events)
    values = [state.valid_through_ms(up_to) or 0 for up_to in range(len(events) + 1)]
    assert values == sorted(values)


@given(events=LOGS)
def test_reported_offsets_never_go_back(events: list[Event]) -> None:
    state, before = CommitState(), 0
    for offset, event in enumerate(events):
        SINK.apply(state, offset, event)
        assert state.reported_offset(TABLE, UUID) >= before
        before = state.reported_offset(TABLE, UUID)


@given(values=OFFSETS)
def test_offsets_come_back_from_their_dense_form(values: dict[TopicPartition, int]) -> None:
    assert dense_to_offsets(offsets_to_dense(values)) == values


@given(values=OFFSETS)
def test_the_dense_form_comes_back_from_offsets(values: dict[TopicPartition, int]) -> None:
    dense = offsets_to_dense(values)
    assert offsets_to_dense(dense_to_offsets(dense)) == dense

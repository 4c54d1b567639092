"""An event comes back as it was written, and what this version may not read stops it with the reason."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, fields, replace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.sink_core.codes import Code
from calve.sink_core.control.events import (
    BatchAbandoned,
    Event,
    Paused,
    PipelineBound,
    Resolved,
    Resumed,
)
from calve.sink_core.control.schemas import MIN_READER_KEY
from calve.sink_core.errors import ProtocolError
from calve.sink_core.tables.batch import ManifestRef, PartitionSummary, ToMerge
from calve.sink_core.tables.log.events import (
    CheckpointPart,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    StartCommit,
    TableCheckpoint,
)
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.range_parts import RangeJob, RangeRead, Replaces, Resolves
from tests.codes import names, raises
from tests.fuzz import mutated
from tests.unit.tables.log.build import checkpoint, complete, written

CHECKPOINT_S_LATER_FIELDS = (
    "paused_reason",
    "paused_at_ms",
    "resumed_by",
    "resumed_at_ms",
    "answer",
    "valid_through_ms",
    "begins",
    "former_positions",
    "former_topic_ids",
    "batches",
    "last_events",
    "fed",
    "range_jobs",
    "delete_below",
)
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588

CLASSES = [each.cls for each in SINK.types.values()]
TEXTS = st.text(max_size=12)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
BYTES = st.none() | st.binary(max_size=16)
STRINGS = st.dictionaries(TEXTS, TEXTS, max_size=3)
COUNTS = st.dictionaries(TEXTS, LONGS, max_size=3)
BY_PARTITION = st.dictionaries(TEXTS, st.lists(LONGS, max_size=5).map(tuple), max_size=3)
NAMES = st.lists(TEXTS, max_size=3).map(tuple)
SUMMARIES = st.builds(PartitionSummary, st.booleans(), st.none() | st.booleans(), BYTES, BYTES)
MANIFESTS = st.builds(
    ManifestRef, TEXTS, LONGS, TEXTS, INTS, INTS, INTS, LONGS, LONGS, st.lists(SUMMARIES, max_size=3).map(tuple)
)
MANIFEST_LISTS = st.lists(MANIFESTS, max_size=2).map(tuple)
REPLACES = st.builds(Replaces, base_snapshot_id=st.none() | LONGS, gone=MANIFEST_LISTS, kept=MANIFEST_LISTS)
RESOLVES = st.builds(
    Resolves,
    finding=TEXTS,
    tagged_snapshot_id=st.none() | LONGS,
    base_snapshot_id=st.none() | LONGS,
    covers_offset=LONGS,
)
TO_MERGE = st.builds(ToMerge, st.lists(INTS, max_size=3).map(tuple), st.none() | INTS, st.booleans(), st.booleans())
RANGES = st.lists(st.builds(RangeRead, TEXTS, INTS, LONGS, LONGS, LONGS), max_size=3).map(tuple)
RANGE_JOBS = st.lists(st.builds(RangeJob, TEXTS, TEXTS, st.booleans(), LONGS, RANGES, st.booleans()), max_size=2).map(
    tuple
)
OPTIONAL_TEXT, OPTIONAL_LONG = st.none() | TEXTS, st.none() | LONGS

FIELDS: dict[type[Event], dict[str, st.SearchStrategy[Any]]] = {
    PipelineBound: dict.fromkeys(("pipeline", "deployment", "fingerprint", "cluster_id", "control_topic_id"), TEXTS),
    StartCommit: dict.fromkeys(("batch_id", "predecessor", "file_prefix", "config_fingerprint"), TEXTS),
    DataWritten: {
        **dict.fromkeys(("batch_id", "table", "table_uuid"), TEXTS),
        "schema_id": INTS,
        "manifests": MANIFEST_LISTS,
        "resolves": st.none() | RESOLVES,
        "replaces": st.none() | REPLACES,
        "changes": st.none() | LONGS,
        "to_merge": st.none() | TO_MERGE,
    },
    DataComplete: {
        **dict.fromkeys(("batch_id", "predecessor", "kind"), TEXTS),
        **dict.fromkeys(("totals", "value_bytes_by_topic", "records_by_topic"), COUNTS),
        **dict.fromkeys(("positions", "through_ms"), BY_PARTITION),
        "tables": NAMES,
        "topic_ids": STRINGS,
        "through_is_estimate": st.booleans(),
        "ledger_manifest": OPTIONAL_TEXT,
        "ranges": RANGES,
        "dropped": st.dictionaries(TEXTS, COUNTS, max_size=3),
    },
    CommitToTable: {
        **dict.fromkeys(("table", "table_uuid", "control_topic_id"), TEXTS),
        **dict.fromkeys(("snapshot_id", "stored_offset"), LONGS),
        "valid_through_ms": OPTIONAL_LONG,
    },
    CommitComplete: {
        "commit_id": TEXTS,
        "through_offset": LONGS,
        "tables_behind": NAMES,
        "valid_through_ms": OPTIONAL_LONG,
    },
    TableCheckpoint: {
        **dict.fromkeys(("pipeline", "deployment", "fingerprint", "cluster_id", "control_topic_id"), TEXTS),
        **dict.fromkeys(("paused_by", "last_complete_batch_id"), OPTIONAL_TEXT),
        **dict.fromkeys(("positions", "through_ms"), BY_PARTITION),
        **dict.fromkeys(("up_to_offset", "delete_below"), LONGS),
        **dict.fromkeys(("topic_ids", "former_topic_ids"), STRINGS),
        "reported": st.dictionaries(TEXTS, COUNTS, max_size=3),
        "open_findings": NAMES,
        **dict.fromkeys(("begins", "former_positions"), BY_PARTITION),
        **dict.fromkeys(("paused_at_ms", "resumed_at_ms", "valid_through_ms", "batches"), LONGS),
        **dict.fromkeys(("paused_reason", "answer"), TEXTS),
        "resumed_by": OPTIONAL_TEXT,
        "last_events": st.dictionaries(TEXTS, NAMES, max_size=3),
        "fed": COUNTS,
        "range_jobs": RANGE_JOBS,
        "parts": st.integers(0, 2**31 - 1),
    },
    CheckpointPart: {"checkpoint_id": TEXTS, "range_jobs": RANGE_JOBS},
    Paused: dict.fromkeys(("by", "reason"), TEXTS),
    Resumed: {"by": TEXTS},
    Resolved: dict.fromkeys(("finding", "subject", "choice", "by"), TEXTS),
    BatchAbandoned: {"batch_id": TEXTS},
}
COMMON: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("pipeline_id", "event_id", "calve_version"), TEXTS),
    "written_at_ms": LONGS,
}


def message(name: str, schema: dict[str, Any], record: dict[str, Any], *, min_reader: int = 1) -> bytes:
    """A control message as another version of Calve would write it."""
    out = io.BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(schema | {"name": name}), [record], metadata={MIN_READER_KEY: str(min_reader)}
    )
    return out.getvalue()


@pytest.mark.parametrize("cls", CLASSES, ids=list(SINK.types))
@given(data=st.data())
def test_every_event_comes_back_as_it_was_written(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(st.builds(cls, **COMMON, **FIELDS[cls]))
    back = SINK.decode(SINK.encode(event))
    assert back == event
    assert type(back) is cls


@pytest.mark.parametrize("cls", CLASSES, ids=list(SINK.types))
def test_every_type_has_a_schema_with_exactly_its_fields(cls: type[Event]) -> None:
    assert [f["name"] for f in SINK.schemas[cls.event_type]["fields"]][:4] == [
        "event_id",
        "pipeline_id",
        "written_at_ms",
        "calve_version",
    ]
    assert {f["name"] for f in SINK.schemas[cls.event_type]["fields"]} == {f.name for f in fields(cls)}


def test_an_older_reader_stops_at_a_job_that_replaces_rows_and_at_no_other() -> None:
    """It would append the rows beside those that are there."""
    replaces = Replaces(base_snapshot_id=1, gone=(), kept=())
    jobs = tuple(RangeJob("r", "t", False, 0, (), replaces=replacing) for replacing in (False, True))
    events = (written("b"), replace(written("b"), replaces=replaces))
    checkpoints = (checkpoint(3, range_jobs=jobs[:1]), checkpoint(3, range_jobs=jobs))
    assert [event.min_reader for event in (*events, *checkpoints)] == [1, 2, 1, 2]
    readers = [fastavro.reader(io.BytesIO(SINK.encode(event))).metadata[MIN_READER_KEY] for event in events]
    assert readers == ["1", "2"]


@pytest.mark.parametrize(
    ("to_merge", "reader"),
    [(None, 4), (ToMerge((1,), soft=True), 4), (ToMerge((1,), order=3), 5), (ToMerge((1,), keeps_old=True), 5)],
)
def test_an_older_reader_stops_at_changes_that_only_a_merge_brings_in(to_merge: ToMerge | None, reader: int) -> None:
    """It would take them in by what its own file says."""
    assert replace(written("b"), changes=1, to_merge=to_merge).min_reader == reader


def test_an_unknown_event_type_stops_the_reader_and_says_to_upgrade() -> None:
    value = message("PARTITION_MERGED", SINK.schemas["RESUMED"], asdict(Resumed(pipeline_id="p", by="ana")))
    with raises(Code.NEWER_VERSION, "PARTITION_MERGED"):
        SINK.decode(value)


def test_an_event_for_a_newer_reader_stops_this_one_with_both_versions() -> None:
    value = message("RESUMED", SINK.schemas["RESUMED"], asdict(Resumed(pipeline_id="p", by="ana")), min_reader=7)
    with raises(Code.NEWER_VERSION) as raised:
        SINK.decode(value)
    names(raised.value.message, "RESUMED", 7, SINK.reader_version)


def test_a_newer_event_that_an_older_reader_may_read_loses_only_the_new_field() -> None:
    schema = deepcopy(SINK.schemas["RESUMED"])
    schema["fields"].append({"name": "ticket", "type": "string"})
    event = Resumed(pipeline_id="p", by="ana")
    assert SINK.decode(message("RESUMED", schema, asdict(event) | {"ticket": "OPS-1"})) == event


@pytest.mark.parametrize(
    ("event", "added_later"),
    [
        (written("b1"), "resolves"),
        (complete("b1"), "ledger_manifest"),
        (complete("b1"), "ranges"),
        *((checkpoint(5), name) for name in CHECKPOINT_S_LATER_FIELDS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_event_written_before_a_field_existed_reads_with_its_default(event: Event, added_later: str) -> None:
    schema = deepcopy(SINK.schemas[event.event_type])
    schema["fields"] = [f for f in schema["fields"] if f["name"] != added_later]
    record = asdict(event)
    del record[added_later]
    assert SINK.decode(message(event.event_type, schema, record)) == event


def test_an_event_that_lacks_a_field_without_default_is_foreign() -> None:
    schema = deepcopy(SINK.schemas["RESUMED"])
    schema["fields"] = [f for f in schema["fields"] if f["name"] != "by"]
    record = asdict(Resumed(pipeline_id="p", by="ana"))
    del record["by"]
    with raises(Code.FOREIGN_MESSAGE):
        SINK.decode(message("RESUMED", schema, record))


@pytest.mark.parametrize("value", [b"", b"{}", b"Obj\x01", b'{"type": "heartbeat"}'])
def test_what_others_wrote_to_the_control_topic_stops_the_reader(value: bytes) -> None:
    with raises(Code.FOREIGN_MESSAGE):
        SINK.decode(value)


@pytest.mark.parametrize("metadata", [None, {MIN_READER_KEY: "one"}])
def test_an_avro_file_without_a_reader_version_is_foreign(metadata: dict[str, str] | None) -> None:
    out = io.BytesIO()
    schema = fastavro.parse_schema(SINK.schemas["RESUMED"])
    fastavro.writer(out, schema, [asdict(Resumed(pipeline_id="p", by="ana"))], metadata=metadata)
    with raises(Code.FOREIGN_MESSAGE):
        SINK.decode(out.getvalue())


def test_an_avro_file_of_no_record_is_foreign() -> None:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(SINK.schemas["RESUMED"]), [], metadata={MIN_READER_KEY: "1"})
    with raises(Code.FOREIGN_MESSAGE):
        SINK.decode(out.getvalue())


@given(cut=st.floats(0, 1, exclude_max=True), flips=st.dictionaries(st.floats(0, 1), st.integers(1, 255), max_size=4))
def test_a_damaged_message_is_never_anything_but_an_event_or_a_protocol_error(
    cut: float, flips: dict[float, int]
) -> None:
    value = bytearray(SINK.encode(complete("b1", {"flights": tuple(range(40))})))
    for where, mask in flips.items():
        value[min(int(where * len(value)), len(value) - 1)] ^= mask
    whole = bytes(value)
    for damaged in (whole, whole[: int(cut * len(whole))]):
        with suppress(ProtocolError):
            assert isinstance(SINK.decode(damaged), Event)


def test_ten_thousand_partitions_fit_into_a_message_of_the_default_size() -> None:
    numbers = random.Random(7)
    topics = [f"a.topic.with.a.name.of.some.length.{i:02}" for i in range(10)]
    event = complete(
        "b1",
        {topic: tuple(numbers.randrange(2**43) for _ in range(1000)) for topic in topics},
        tables=tuple(f"namespace.table_{i}" for i in range(50)),
        topic_ids={topic: f"{numbers.getrandbits(128):032x}" for topic in topics},
        through_ms={topic: tuple(numbers.randrange(1_700_000_000_000, 2**41) for _ in range(1000)) for topic in topics},
    )
    value = SINK.encode(event)
    assert len(value) < DEFAULT_MAX_MESSAGE_BYTES // 4
    assert SINK.decode(value) == event


EVENTS = st.sampled_from([SINK.encode(checkpoint(4)), SINK.encode(complete("b1")), SINK.encode(written("b1"))])


@settings(max_examples=400)
@given(value=st.binary(max_size=300) | mutated(EVENTS))
def test_bytes_of_others_are_no_event_and_nothing_worse(value: bytes) -> None:
    with suppress(ProtocolError):
        assert type(SINK.decode(value)) in CLASSES

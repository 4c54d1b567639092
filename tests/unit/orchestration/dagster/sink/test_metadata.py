"""What Dagster stores of batches, commits and failures: bounded, ids as text, no secret."""

from __future__ import annotations

import json

import dagster as dg
import pytest
from dagster._serdes import serialize_value
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calve.orchestration.dagster.common import tags
from calve.orchestration.dagster.common.runs import error_tags
from calve.orchestration.dagster.sink import metadata
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.control.decision import Verdict
from calve.sink_core.detached import free_port
from calve.sink_core.errors import (
    BadRecord,
    CalveError,
    ConfigError,
    FindingError,
    RetriableError,
    Unreachable,
)
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.first_contact import cluster
from calve.sink_core.sink.batches import BatchReport
from calve.sink_core.tables.commit import TableCommit

BATCHES = dg.AssetKey(["p", "batches"])
LARGE_ID = 2**63 - 1
NOW_MS = 1_800_000_002_000
MOST_CHARACTERS = 500
SECRET = "s3cr3t-that-nobody-sees"
EVENT_BYTES = 64 * 1024


def batch(ranges: int) -> BatchReport:
    return BatchReport(
        batch_id="5f0c6c3e-0000-4000-8000-000000000000",
        verdict=Verdict.PUBLISH,
        why="",
        ranges=tuple(("a-topic-with-a-name-" + "x" * 229, n, 10**12, 10**12 + n + 1) for n in range(ranges)),
        records=50_005_000,
        dead_lettered=3,
        tombstones=0,
        gaps=0,
        value_bytes=10**11,
        rows={"air.flights": 50_004_997},
        lag_after=12,
        seconds={"plan": 0.1, "write": 2.5, "publish": 0.02},
        filtered=2,
        left_out={"air.flights": 4, "air.carriers": 1},
    )


def commit(valid_through_ms: int | None = 1_800_000_000_500) -> TableCommit:
    return TableCommit(
        table="air.flights",
        table_uuid="u",
        snapshot_id=LARGE_ID,
        stored_offset=LARGE_ID,
        valid_through_ms=valid_through_ms,
        landed=True,
        batches=("b1", "b2"),
        rows=7,
        files=2,
        total_rows=10**12,
        total_files=40,
        total_bytes=10**15,
        conflicts=1,
        seconds=0.25,
    )


def stored(known: dict[str, object], tags: dict[str, str] | None = None) -> str:
    """As in the event log."""
    return serialize_value(dg.AssetMaterialization(BATCHES, metadata=known, tags=tags))


def test_a_batch_shows_its_ranges_as_a_table_and_its_numbers_as_numbers() -> None:
    known = metadata.of_batch(batch(2))
    ranges = known.pop("ranges")
    assert [record.data for record in ranges.records] == [
        {
            "topic": ranges.records[0].data["topic"],
            "partition": n,
            "start": 10**12,
            "end": 10**12 + n + 1,
            "offsets": n + 1,
        }
        for n in range(2)
    ]
    assert [column.name for column in ranges.schema.columns] == list(ranges.records[0].data)
    assert known == {
        "batch id": "5f0c6c3e-0000-4000-8000-000000000000",
        "records": 50_005_000,
        "bytes": 10**11,
        "dead letters": 3,
        "filtered": 2,
        "rows left out": 5,
        "lag (offsets)": 12,
        "plan time (s)": 0.1,
        "write time (s)": 2.5,
        "publish time (s)": 0.02,
    }


@pytest.mark.parametrize("ranges", [100, 101, 10_000])
def test_what_is_stored_of_a_batch_is_bounded(ranges: int) -> None:
    known = metadata.of_batch(batch(ranges))
    assert len(known["ranges"].records) == 100
    assert known.get("ranges not shown", 0) == ranges - 100
    assert len(stored(known, tags.of_version())) < EVENT_BYTES


def test_a_commit_tells_ids_as_text_and_counts_as_numbers() -> None:
    known = metadata.of_commit(commit(), NOW_MS)
    through = known.pop("valid through")
    assert through.value == 1_800_000_000.5
    assert known == {
        "dagster/row_count": 10**12,
        "rows added": 7,
        "files added": 2,
        "batches": 2,
        "total files": 40,
        "total bytes": 10**15,
        "snapshot id": str(LARGE_ID),
        "lost races": 1,
        "commit time (s)": 0.25,
        "behind (s)": 1.5,
    }
    json_numbers = [v for v in known.values() if isinstance(v, int)]
    assert max(json_numbers) < 2**53, "what a browser keeps exactly"


@pytest.mark.parametrize("through", [None, 0])
def test_a_table_that_promises_nothing_yet_says_nothing(through: int | None) -> None:
    assert metadata.of_commit(commit(through), NOW_MS).keys().isdisjoint({"valid through", "behind (s)"})


def test_columns_have_icebergs_types() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True, doc="who"), NestedField(2, "text", StringType(), required=False)
    )
    shown = metadata.of_schema(schema)["dagster/column_schema"].columns
    assert [(c.name, c.type, c.description, c.constraints.nullable) for c in shown] == [
        ("id", "long", "who", False),
        ("text", "string", None, True),
    ]
    nested = Schema(NestedField(1, "_kafka", StructType(NestedField(2, "offset", LongType(), required=False))))
    assert metadata.of_schema(nested)["dagster/column_schema"].columns[0].type == "struct<offset: long>"
    planned = metadata.of_columns({"id": "decimal(10,2)"}, {"id": "Of the booking."})["dagster/column_schema"].columns
    assert [(c.name, c.type, c.description) for c in planned] == [("id", "decimal(10,2)", "Of the booking.")]
    assert metadata.of_columns({}) == {}


def test_tags_of_materializations_are_short_texts() -> None:
    table = tags.following(dg.AssetKey(["p" * 41, "batches"]), str(commit().snapshot_id))
    for each in (table, tags.of_version()):
        assert all(isinstance(value, str) and len(key) + len(value) < MOST_CHARACTERS for key, value in each.items())
    assert str(LARGE_ID) in table.values(), "the data version is the snapshot"


TEXTS = st.text(max_size=3_000)
ERRORS = st.one_of(
    st.builds(lambda kind, m, h: kind(m, hint=h), st.sampled_from([BadRecord, Unreachable, ConfigError]), TEXTS, TEXTS),
    st.builds(
        lambda a, b, c, d: FindingError("table-rolled-back", a, stored=b, found=c, hint=d), TEXTS, TEXTS, TEXTS, TEXTS
    ),
)


@given(ERRORS)
def test_tags_of_failures_are_short_single_lines(error: CalveError) -> None:
    tags = error_tags(error)
    assert all(len(value) < MOST_CHARACTERS for value in tags.values())
    assert all(len(value.splitlines()) <= 1 for value in tags.values())
    assert len(json.dumps(tags)) < 12_000
    assert tags["calve/terminal"] == str(not isinstance(error, Unreachable | ConfigError)).lower()
    assert bool(tags["calve/remedy"]) is bool(error.hint.split())


def test_tags_of_failures_name_the_error_its_kind_and_the_remedy() -> None:
    finding = FindingError("table-rolled-back", "t", stored="1", found="2", hint="calve resolve p.yaml")
    assert error_tags(finding) == {
        "calve/error": "table-rolled-back",
        "calve/terminal": "true",
        "calve/why": "table-rolled-back: t: stored 1, found 2",
        "calve/remedy": "calve resolve p.yaml",
    }
    assert error_tags(RetriableError("later")) == {
        "calve/error": "RetriableError",
        "calve/terminal": "false",
        "calve/why": "later",
        "calve/remedy": "",
    }


def refused_kafka() -> None:
    guarded = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    servers = {"bootstrap.servers": f"127.0.0.1:{free_port()}", "sasl.password": SECRET}
    settings = {**guarded, **servers}
    cluster(clients.admin(settings), settings, answer_s=0.4)


def refused_catalog(**properties: str) -> None:
    open_catalog(CatalogSettings("lake", properties, {}))


def test_no_secret_is_in_the_tags_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_TEST_SECRET", SECRET)
    at, told = f"127.0.0.1:{free_port()}", list[dict[str, str]]()
    rest = {"type": "rest", "uri": f"http://ann:{SECRET}@{at}"}
    for fail in (
        refused_kafka,
        lambda: refused_catalog(**rest),
        lambda: refused_catalog(type="rest", uri=f"http://{at}", token="${ENV:CALVE_TEST_SECRET}"),
        lambda: refused_catalog(type="sql", uri=f"postgresql+psycopg2://ann:{SECRET}@{at}/db", warehouse="w"),
        lambda: refused_catalog(type="none", password=SECRET, uri=f"x://ann:{SECRET}@{at}"),
        lambda: refused_catalog(type="rest", uri="${ENV:CALVE_TEST_MISSING}"),
    ):
        with pytest.raises(CalveError) as failed:
            fail()
        told.append(error_tags(failed.value))
    assert SECRET not in json.dumps(told)
    assert any("127.0.0.1" in tags["calve/why"] for tags in told)

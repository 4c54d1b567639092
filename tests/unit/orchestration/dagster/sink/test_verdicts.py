"""What each check says of a state: passing, warning and failing, with the numbers in its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.dagster.common.checks import told
from calve.orchestration.dagster.common.verdicts import Verdict, retention
from calve.orchestration.dagster.common.verdicts import lag as lag_verdict
from calve.orchestration.dagster.sink import checks, verdicts
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.sink.status import PartitionStatus, StatusReport, TableStatus, Uncommitted
from calve.sink_core.tables.log.state import BatchSeen
from calve.sink_core.tables.proof import VerifyReport, Violation
from tests.codes import names

TABLE = "air.flights"
MIB = 2**20


@pytest.fixture
def pipeline(tmp_path: Path) -> SinkPipeline:
    return written(tmp_path, objectives={"lag": 10, "freshness": "60s", "dead_letters": "5%"})


def written(directory: Path, **more: Any) -> SinkPipeline:
    connections = {"deployment": "test", "kafka": {"main": {"bootstrap.servers": "nowhere:1"}}, "catalog": {}}
    file = {
        "name": "p",
        "source": {"kafka": "main", "topics": ["flights"]},
        "catalog": {"type": "sql", "uri": "sqlite:////nowhere.db", "warehouse": "file:///nowhere"},
        "tables": [{"name": TABLE, "auto_create": {}}, {"name": "air.more", "auto_create": {}}],
        **more,
    }
    (directory / "connections.yaml").write_text(json.dumps(connections))
    (directory / "p.yaml").write_text(json.dumps(file))
    return load(directory / "p.yaml")


def partition(number: int, position: int | None, log_start: int, end: int) -> PartitionStatus:
    following = log_start if position is None else position
    return PartitionStatus("flights", number, position, log_start, end, max(0, end - following), following - log_start)


def table(name: str = TABLE, *, batches: int = 0, missing_s: float | None = None, **more: Any) -> TableStatus:
    return TableStatus(
        name, exists=True, uncommitted=Uncommitted(batches, 7 * batches, 1.0), missing_s=missing_s, **more
    )


def report(*partitions: PartitionStatus, tables: tuple[TableStatus, ...] = (), lag: int | None = None) -> StatusReport:
    return StatusReport(
        pipeline="p",
        bootstrapped=True,
        lag=sum(p.lag for p in partitions) if lag is None else lag,
        topics=(),
        partitions=partitions,
        paused=None,
        last_batch=None,
        in_flight=(),
        tables=tables,
        control_topic=None,
        publish_pending=False,
        findings=(),
    )


def batch(**totals: int) -> BatchSeen:
    return BatchSeen(0, "", "batch", (), totals, {})


def severity(verdict: Verdict) -> str:
    return "passing" if verdict.passed else "warning" if verdict.warning else "failing"


@pytest.mark.parametrize(
    ("lag", "most", "said", "named"),
    [
        (0, None, "passing", ["0"]),
        (123_456, None, "passing", ["123,456"]),
        (10_000, 10_000, "passing", ["10,000", "objectives.lag"]),
        (10_001, 10_000, "failing", ["10,001", "objectives.lag", "10,000"]),
        (1, 0, "failing", ["1", "objectives.lag", "0"]),
    ],
)
def test_lag(lag: int, most: int | None, said: str, named: list[str]) -> None:
    verdict = lag_verdict(lag, most)
    assert (severity(verdict), verdict.numbers) == (said, {"lag": lag})
    names(verdict.text, *named)


@pytest.mark.parametrize(
    ("waiting", "batches", "missing_s", "most_s", "said", "named", "numbers"),
    [
        (0, 0, 9_999.0, 60, "passing", [], {"age_s": 0.0}),
        (0, 0, None, 60, "passing", [], {"age_s": 0.0}),
        (5, 0, None, None, "passing", [], {}),
        (5, 0, None, 60, "failing", [], {}),
        (
            5,
            0,
            1234.5,
            None,
            "passing",
            ["1,234.5 s"],
            {"age_s": 1234.5},
        ),
        (
            5,
            0,
            60.0,
            60,
            "passing",
            ["60.0 s", "objectives.freshness", "60 s"],
            {"age_s": 60.0},
        ),
        (
            0,
            1,
            60.06,
            60,
            "failing",
            ["60.1 s", "objectives.freshness", "60 s"],
            {"age_s": 60.06},
        ),
    ],
)
def test_freshness(
    waiting: int,
    batches: int,
    missing_s: float | None,
    most_s: float | None,
    said: str,
    named: list[str],
    numbers: Mapping[str, float],
) -> None:
    verdict = verdicts.freshness(table(batches=batches, missing_s=missing_s, lag=waiting), most_s)
    assert (severity(verdict), verdict.numbers) == (said, numbers)
    assert verdict.text
    names(verdict.text, *named)


@pytest.mark.parametrize(
    ("partitions", "said", "named", "share"),
    [
        ([], "passing", [], None),
        ([partition(0, 100, 0, 100)], "passing", [], None),
        ([partition(0, None, 50, 100)], "passing", [], None),
        ([partition(0, 110, 100, 200)], "passing", ["flights[0]", "10%"], 0.1),
        ([partition(0, 199, 100, 200), partition(1, 105, 100, 200)], "warning", ["flights[1]", "5%"], 0.05),
        ([partition(0, 0, 0, 100)], "passing", [], None),
        ([partition(0, 90, 90, 100)], "warning", ["flights[0]", "0%"], 0.0),
        (
            [partition(0, 50, 0, 100), partition(1, 80, 90, 100)],
            "failing",
            ["flights[1]"],
            -1.0,
        ),
    ],
)
def test_retention(partitions: list[PartitionStatus], said: str, named: list[str], share: float | None) -> None:
    verdict = retention(partitions)
    assert severity(verdict) == said
    assert ("flights" in verdict.text) == bool(named)
    names(verdict.text, *named)
    assert verdict.numbers == ({} if share is None else {"share_left": share})


@pytest.mark.parametrize(
    ("batches", "said", "named", "share"),
    [
        (
            [],
            "passing",
            ["0", "0", "0.00%"],
            0,
        ),
        (
            [batch()],
            "passing",
            ["0", "1", "0.00%"],
            0,
        ),
        (
            [batch(records=1_990), batch(records=10, dead_lettered=20)],
            "passing",
            ["20", "2,000", "2", "1.00%"],
            0.01,
        ),
        (
            [batch(records=1_000, dead_lettered=11)],
            "warning",
            ["11", "1,000", "1", "1.10%"],
            0.011,
        ),
        (
            [batch(records=9, dead_lettered=9), *[batch(records=1)] * 100],
            "passing",
            ["0", "100", "0.00%"],
            0,
        ),
    ],
)
def test_dead_letters(batches: list[BatchSeen], said: str, named: list[str], share: float) -> None:
    verdict = verdicts.dead_letter_rate(batches, 0.01)
    assert (severity(verdict), verdict.numbers["share"]) == (said, share)
    names(verdict.text, *named, "1.00%", "objectives.dead_letters")


@pytest.mark.parametrize(
    ("files", "mean_bytes", "said", "named"),
    [
        (
            0,
            0,
            "passing",
            ["0", "0.00 MiB"],
        ),
        (
            49,
            1024,
            "passing",
            ["49", "0.00 MiB"],
        ),
        (
            50,
            32 * MIB,
            "passing",
            ["50", "32.00 MiB"],
        ),
        (
            1_000,
            31 * MIB,
            "warning",
            ["1,000", "31.00 MiB"],
        ),
    ],
)
def test_file_sizes(files: int, mean_bytes: int, said: str, named: list[str]) -> None:
    verdict = verdicts.file_sizes(table(files=files, bytes=files * mean_bytes), 256 * MIB)
    assert severity(verdict) == said
    names(verdict.text, *named, "target_file_size", "256 MiB")
    assert verdict.numbers == {"files": files, "mean_bytes": mean_bytes}


def proof(*violations: Violation) -> VerifyReport:
    return VerifyReport(
        "p", deep=False, violations=violations, not_checked=(), facts={"offsets": 25}, uncommitted={}, left_out={}
    )


def test_a_proof_that_holds(pipeline: SinkPipeline) -> None:
    verdict = verdicts.proof(pipeline, proof())
    assert severity(verdict) == "passing"
    assert verdict.text
    assert (verdict.subject, verdict.check, verdict.numbers) == ("calve.p_ledger", "proof", {"offsets": 25})


def test_a_proof_of_the_last_batches_says_since_when(pipeline: SinkPipeline) -> None:
    verdict = verdicts.proof(pipeline, replace(proof(), since="2026-01-01T00:00:00Z"))
    names(verdict.text, "2026-01-01T00:00:00Z")
    assert verdict.details["since"] == "2026-01-01T00:00:00Z"


def test_a_proof_that_fails_names_each_violation_with_its_ranges(pipeline: SinkPipeline) -> None:
    gap = Violation("gap", "flights[3]", "not accounted for", ("flights[3] [100, 240)", "flights[3] [300, 301)"))
    verdict = verdicts.proof(pipeline, proof(gap, Violation("file-missing", TABLE, "it is gone")))
    assert severity(verdict) == "failing"
    shown = verdict.details["violations"]
    assert [(each["kind"], each["ranges"]) for each in shown] == [("gap", gap.ranges), ("file-missing", ())]
    of_gap, of_file = verdict.text.splitlines()
    names(of_gap, "gap", "flights[3]", gap.message, *gap.ranges)
    names(of_file, "file-missing", TABLE, "it is gone")


def test_all_verdicts_are_those_that_dagster_knows_and_follow_the_objectives(pipeline: SinkPipeline) -> None:
    dropped = {"gate": 1, "note": 2_000}
    tables = (
        table(lag=1, missing_s=61.0),
        table("air.more", lag=1, missing_s=59.0, files=60, bytes=60, dropped=dropped),
    )
    stale = report(partition(0, 5, 0, 16), tables=tables)
    found = [*verdicts.health(pipeline, stale, [batch(records=10, dead_lettered=1)]), verdicts.proof(pipeline, proof())]
    known = {spec.key for spec in checks.specs(pipeline)}
    assert {(checks.asset_key(pipeline, v.subject), v.check) for v in found} == {(k.asset_key, k.name) for k in known}
    assert len(found) == len(known) == 12
    assert {(v.subject, v.check): severity(v) for v in found if not v.passed} == {
        (None, "lag"): "failing",
        (TABLE, "freshness"): "failing",
        ("air.more", "file_sizes"): "warning",
        ("air.more", "dropped_fields"): "warning",
        ("calve.p_dead_letters", "dead_letter_rate"): "warning",
    }


def test_fields_without_a_column_are_named_with_what_to_do() -> None:
    verdict = verdicts.dropped_fields(table(dropped={"gate": 1, "": 2_000}))
    names(verdict.text, "gate", "1", "2,000", "evolve: [add_column]", "ignore_fields")
    assert (verdict.numbers, severity(verdict)) == ({"fields": 2, "values": 2_001}, "warning")
    assert severity(verdicts.dropped_fields(table())) == "passing"


def test_without_objectives_only_dead_letters_have_one(tmp_path: Path) -> None:
    tables = (table(lag=1, missing_s=10.0**6), table("air.more", lag=1))
    found = verdicts.health(written(tmp_path), report(partition(0, 50, 50, 10**6), tables=tables), [])
    assert [verdict.check for verdict in found if not verdict.passed] == ["retention"]


def test_warnings_and_failures_differ_in_severity(pipeline: SinkPipeline) -> None:
    tables = (table(lag=1, missing_s=61.0, files=60, bytes=60), table("air.more"))
    found = verdicts.health(pipeline, report(partition(0, 5, 0, 16), tables=tables), [])
    everything = told(found, partial(checks.asset_key, pipeline))
    by_key = {(e.asset_key.to_user_string(), e.check_name): e for e in everything}
    assert len(by_key) == len(found)
    by_run = {(e.asset_key.to_user_string(), e.check_name) for e in checks.evaluations(pipeline, found)}
    assert {check for _, check in by_key.keys() - by_run} == {"lag", "freshness"}, "objectives of its file"
    freshness, sizes = by_key["air/flights", "freshness"], by_key["air/flights", "file_sizes"]
    assert (freshness.passed, freshness.severity.value) == (False, "ERROR")
    assert (sizes.passed, sizes.severity.value) == (False, "WARN")
    names(freshness.description or "", "61.0 s", "objectives.freshness", "60 s")
    assert {name: value.value for name, value in sizes.metadata.items()} == {"files": 60, "mean_bytes": 1}

"""The proof of a source sees what is missing, moved or of others, and says where."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from dagster import DagsterInstance

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.verify import SourceProof, verify
from tests import support
from tests.dagster_runs import run_of
from tests.launch import calve
from tests.source_flow import Made, all_sent, document, lines_of, write_offset


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Made:
    """Seven lines in a generation, and three in another."""
    made = all_sent(broker, tmp_path)
    made.write("a", "a5", "# dropped", "a6", "a7")
    made.run()
    return made


def proof(made: Made, *, deep: bool = True) -> SourceProof:
    with SourcePlane(made.pipeline) as plane:
        assert plane.read_only()
        return verify(plane, deep=deep)


def counts(found: SourceProof) -> list[tuple[int, int, int, int]]:
    return [(each.records, each.checked, each.expired, each.others) for each in found.partitions]


def test_all_that_was_sent_is_proven(made: Made) -> None:
    found = proof(made)
    assert (found.proven, found.records, found.source_partitions, counts(found)) == (True, 10, 2, [(10, 10, 0, 0)])


def test_what_retention_has_taken_is_said(made: Made) -> None:
    support.delete_records(AdminClient({"bootstrap.servers": made.broker.bootstrap}), made.topic, 7)
    found = proof(made)
    assert (found.proven, counts(found)) == (True, [(10, 3, 7, 0)])


def test_records_of_others_are_counted_apart(made: Made) -> None:
    support.produce(made.broker.bootstrap, made.topic, [b"theirs", b"theirs"])
    found = proof(made)
    assert (found.proven, counts(found)) == (True, [(10, 10, 0, 2)])


def test_a_topic_that_was_made_anew_is_proven_from_then_on(made: Made) -> None:
    support.delete_topic(AdminClient({"bootstrap.servers": made.broker.bootstrap}), made.topic)
    assert counts(proof(made)) == [(10, 0, 10, 0)]
    made.write("b", "b2")
    made.run()
    found = proof(made)
    assert (found.proven, found.records, counts(found)) == (True, 11, [(1, 1, 0, 0)])


def test_an_offset_that_somebody_moved_is_a_fault_with_both(made: Made) -> None:
    write_offset(made, made.pipeline.offsets_topic, made.key("b"), {"line": 1})
    [fault] = proof(made, deep=False).faults
    for value in ("source-offset-moved", '{"file":"b.txt"}', '{"line":2}', '{"line":1}'):
        assert value in fault


def test_what_was_in_the_offsets_topic_before_is_nobody_s_fault(made: Made) -> None:
    write_offset(made, made.pipeline.offsets_topic, made.key("of_another_time"), {"line": 7})
    assert proof(made, deep=False).proven


def test_records_that_are_missing_are_found_with_their_offsets(made: Made) -> None:
    with SourcePlane(made.pipeline) as plane:
        assert plane.read_only()
        [(at, runs)] = plane.log.refresh_to_end().written.items()
        # As if one more had been sent than is there.
        plane.log.state.written[at] = [replace(runs[0], records=6), *runs[1:]]
        found = verify(plane, deep=True)
    [(fault,)] = [each.faults for each in found.partitions]
    assert re.findall(r"\d+", fault) == ["0", "5", "6", "5"]


def test_what_the_command_says(made: Made) -> None:
    said = document("verify", made.file, "--deep")
    assert (said["proven"], said["records"], said["partitions"][0]["records_read"]) == (True, 10, 10)
    assert calve("verify", made.file).returncode == EXIT_DONE
    write_offset(made, made.pipeline.offsets_topic, made.key("b"), None)
    wrong = calve("verify", made.file, "--json")
    assert wrong.returncode == EXIT_STOPPED
    [fault] = json.loads(wrong.stdout)["faults"]
    for value in ("source-offset-moved", '{"file":"b.txt"}', '{"line":2}'):
        assert value in fault


def test_a_source_that_has_not_run_has_nothing_to_prove(broker: Broker, tmp_path: Path) -> None:
    made = lines_of(broker, tmp_path)
    for more in ((), ("--deep",)):
        said = calve("verify", made.file, "--json", *more)
        assert said.returncode == EXIT_STOPPED
        assert json.loads(said.stdout) == {"proven": False, "verdict": "nothing-to-prove", "deep": bool(more)}


def test_what_the_proof_can_not_see_is_named(made: Made) -> None:
    shown = document("verify", made.file)
    assert [each["subject"] for each in shown["not_checked"]] == ["tests.lines_source:Lines"]
    assert shown["verdict"] == "proven"


def test_the_jobs_of_proof_and_positions_in_dagster(made: Made, instance: DagsterInstance) -> None:
    proven = run_of(made.pipeline, instance, "verify", deep=True)
    assert {name: each.passed for (_, name), each in proven.checks.items()} == {"chain": True}
    counts = {"records": 10, "read": 10, "expired": 0, "of others": 0}
    assert proven.records("read again") == [{"topic": made.topic, "partition": 0, **counts}]
    assert len(run_of(made.pipeline, instance, "positions").records("positions")) == 2
    write_offset(made, made.pipeline.offsets_topic, made.key("b"), {"line": 1})
    wrong = run_of(made.pipeline, instance, "verify")
    assert "source-offset-moved" in wrong.failure.user_failure_data.description

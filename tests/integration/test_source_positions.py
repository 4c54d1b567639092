"""`calve positions` of a source: offsets seen, set and taken away, on a real broker and with a kill in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED
from calve.sink_core.source import positions
from calve.sink_core.source.checking import kafka_acls_lines
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.moving import Move, move
from calve.sink_core.source.plane import SourcePlane
from tests import support
from tests.codes import finding, raises, says
from tests.launch import calve
from tests.source_flow import A, B, Made, all_sent, at, document, lines_of, paused, shown, write_offset


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Made:
    return all_sent(broker, tmp_path)


def test_an_offset_is_set_while_paused_and_read_from_there(made: Made) -> None:
    words = ("positions", "set", made.file, "--partition", A, "--offset", '{"line":3}')
    refused = calve(*words, "--yes")
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.POSITIONS_AT_WORK, made.pipeline.name, "calve pause FILE --wait")
    paused(made)
    asked = calve(*words)
    assert asked.returncode == EXIT_BAD_INPUT
    assert f'{A}\t{{"line":5}}\t{{"line":5}}\t{{"line":3}}' in asked.stdout
    assert "2 lines" in asked.stdout
    says(asked.stderr, Code.NOBODY_TO_ASK)
    assert shown(made) == {"a.txt": at(5), "b.txt": at(2)}

    done = document(*words, "--yes", "--reason", "a test")
    assert (done["set"], done["waiting"]) == (
        [{"partition": {"file": "a.txt"}, "from": {"line": 5}, "logged": {"line": 5}, "to": {"line": 3}}],
        "2 lines",
    )
    assert shown(made) == {"a.txt": at(3), "b.txt": at(2)}
    assert made.offsets() == {made.key("a"): {"line": 3}, made.key("b"): {"line": 2}}
    assert "a test" in document("status", made.file)["last_batch"]["ended"]
    assert document(*words, "--yes")["set"] == []

    assert calve("resume", made.file).returncode == EXIT_DONE
    assert made.run().records == 2
    assert sorted(made.values()[-2:]) == ["a3", "a4"]
    assert document("status", made.file)["findings"] == []


def test_a_reset_takes_one_offset_or_all(made: Made) -> None:
    paused(made)
    document("positions", "reset", made.file, "--partition", B, "--yes")
    assert made.offsets()[made.key("b")] is None
    assert shown(made) == {"a.txt": at(5)}
    assert [each["to"] for each in document("positions", "reset", made.file, "--yes")["set"]] == [None]
    assert made.offsets() == {made.key("a"): None, made.key("b"): None}
    assert shown(made) == {}
    assert document("positions", "reset", made.file, "--yes")["set"] == []
    calve("resume", made.file)
    assert made.run().records == 7
    assert shown(made) == {"a.txt": at(5), "b.txt": at(2)}


def test_what_show_printed_is_put_back_and_a_null_resets(made: Made, tmp_path: Path) -> None:
    paused(made)
    (kept := tmp_path / "kept.json").write_text(calve("positions", "show", made.file, "--json").stdout)
    document("positions", "reset", made.file, "--yes")
    document("positions", "set", made.file, "--from", kept, "--yes")
    assert shown(made) == {"a.txt": at(5), "b.txt": at(2)}
    # As Kafka Connect's REST interface has it.
    offsets = [
        {"partition": {"file": "a.txt"}, "offset": {"line": 1}},
        {"partition": {"file": "b.txt"}, "offset": None},
    ]
    kept.write_text(json.dumps({"offsets": offsets}))
    document("positions", "set", made.file, "--from", kept, "--yes")
    assert shown(made) == {"a.txt": at(1)}
    kept.write_text(json.dumps([{"partition": "a.txt"}]))
    refused = calve("positions", "set", made.file, "--from", kept, "--yes")
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.POSITIONS_FILE, kept, "a.txt")


@pytest.mark.parametrize("offset", [3, 5])
def test_setting_it_answers_an_offset_that_somebody_else_moved(made: Made, offset: int) -> None:
    """Whether that is the offset of the topic or the one of the log."""
    write_offset(made, made.pipeline.offsets_topic, made.key("a"), {"line": 3})
    made.write("b", "b2")
    with raises(finding("source-offset-moved")):
        made.run()
    paused(made)
    assert shown(made)["a.txt"] == ({"line": 3}, {"line": 5})
    document("positions", "set", made.file, "--partition", A, "--offset", f'{{"line":{offset}}}', "--yes")
    assert shown(made)["a.txt"] == at(offset)
    calve("resume", made.file)
    assert made.run().records == 1 + 5 - offset
    assert document("status", made.file)["findings"] == []


def test_before_the_first_run_it_says_where_that_begins(broker: Broker, tmp_path: Path) -> None:
    made = lines_of(broker, tmp_path)
    made.write("a", *(f"a{i}" for i in range(5)))
    assert shown(made) == {}
    paused(made)
    document("positions", "set", made.file, "--partition", A, "--offset", '{"line":4}', "--yes")
    calve("resume", made.file)
    assert made.run().records == 1
    assert made.values() == ["a4"]


def test_an_offset_that_the_source_cant_go_on_from_is_refused(made: Made) -> None:
    paused(made)
    refused = calve("positions", "set", made.file, "--partition", A, "--offset", '{"row":3}', "--yes")
    assert refused.returncode == EXIT_STOPPED
    says(refused.stderr, Code.SOURCE_FAILED, "KeyError: 'line'")
    refused = calve("positions", "set", made.file, "--partition", A, "--offset", '{"line":[3]}', "--yes")
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.NOT_FLAT, "line", [3])
    assert made.offsets()[made.key("a")] == {"line": 5}


@pytest.mark.parametrize("words", [[], ["--partition", A], ["--from", "x.json", "--partition", A, "--offset", A]])
def test_offsets_are_given_in_one_way(made: Made, words: list[str]) -> None:
    refused = calve("positions", "set", made.file, *words, "--yes")
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.OPTION, "--partition", "--offset", "--from")


def test_who_was_overtaken_changes_nothing(made: Made) -> None:
    paused(made)
    with SourcePlane(made.pipeline) as plane:
        found = positions.prepare(plane, {FlatMap.parsed(A): FlatMap({"line": 1})})
        document("positions", "set", made.file, "--partition", A, "--offset", '{"line":4}', "--yes")
        with raises(Code.OVERTAKEN):
            positions.carry_out(plane, found.moves, by="me", reason="late")
        found = positions.prepare(plane, {FlatMap.parsed(A): FlatMap({"line": 1})})
        calve("resume", made.file)
        with raises(Code.POSITIONS_AT_WORK):
            positions.carry_out(plane, found.moves, by="me", reason="late")
    assert shown(made)["a.txt"] == at(4)


def test_offsets_that_somebody_moves_meanwhile_are_not_written_over(made: Made) -> None:
    """As a task of the connector does that takes the slot between the fence of the generation and that of the slot."""
    with SourcePlane(made.pipeline) as plane:
        plane.bind()
        led = plane.lead_empty()
        assert led is not None
        plane.offsets.refresh()
        write_offset(made, made.pipeline.offsets_topic, made.key("a"), {"line": 3})
        one = Move(FlatMap.parsed(A), FlatMap({"line": 5}), FlatMap({"line": 5}), FlatMap({"line": 1}))
        with raises(Code.OVERTAKEN):
            move(plane, led.generation, [one])
    assert made.offsets()[made.key("a")] == {"line": 3}


@pytest.mark.parametrize("by", ["run", "set"])
def test_a_task_of_the_connector_that_has_not_ended_is_fenced(broker: Broker, tmp_path: Path, by: str) -> None:
    """Whatever its number, and though its transaction hides the end of the offsets topic."""
    topic = support.create_topic(broker.bootstrap, support.unique("offsets"), 1, {"cleanup.policy": "compact"})
    connect = {"group": support.unique("cg"), "connector": "shop", "tasks": 3}
    made = lines_of(broker, tmp_path, offsets={"topic": topic}, connect=connect)
    made.write("a", *(f"a{i}" for i in range(5)))
    support.create_topic(broker.bootstrap, made.topic)
    task = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{connect['group']}-shop-2"})
    task.init_transactions(support.TIMEOUT_S)
    task.begin_transaction()
    task.produce(made.topic, b"late")
    task.produce(topic, b'{"line":1}', f'["shop",{A}]'.encode())
    task.flush(support.TIMEOUT_S)
    if by == "set":
        calve("pause", made.file, "--wait")
        document("positions", "set", made.file, "--partition", A, "--offset", '{"line":4}', "--yes")
    else:
        made.run()
    with pytest.raises(KafkaException, match="_FENCED"):
        task.commit_transaction(support.TIMEOUT_S)
    assert made.values() == ([] if by == "set" else [f"a{i}" for i in range(5)])


def test_the_lines_for_kafka_acls_name_the_connectors_ids_and_the_topic_of_old_offsets(
    broker: Broker, tmp_path: Path
) -> None:
    connect = {"group": "cg", "connector": "shop"}
    made = lines_of(broker, tmp_path, offsets={"topic": "new", "migrate_from": "old"}, connect=connect)
    lines = kafka_acls_lines(made.pipeline)
    assert any("--transactional-id cg-shop- --resource-pattern-type prefixed" in line for line in lines)
    assert any("--operation Read --operation Describe --topic old" in line for line in lines)
    checked = calve("check", made.file)
    assert checked.returncode == EXIT_STOPPED
    assert "old" in next(line for line in checked.stdout.splitlines() if "source offsets" in line)

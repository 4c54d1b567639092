"""The commands of a mirror as a user meets them, between two real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.slots.events import PositionsSet
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED
from calve.sink_core.mirror.state import MIRROR
from tests import support
from tests.launch import calve
from tests.mirrors import Mirror, mirror


@pytest.fixture
def copied(broker: Broker, other_broker: Broker, tmp_path: Path) -> Mirror:
    """A mirror of a topic of two partitions with 30 records, which nobody has run yet."""
    topic = support.create_topic(broker.bootstrap, support.unique("orders"), 2)
    support.produce(broker.bootstrap, topic, [f"a{i}" for i in range(20)])
    support.produce(broker.bootstrap, topic, [f"b{i}" for i in range(10)], partition=1)
    return mirror(broker, other_broker, tmp_path, [topic])


def topic_of(made: Mirror) -> str:
    return made.pipeline.config.source.topics[0]


def with_target(made: Mirror, **values: Any) -> Mirror:
    """The same with other settings of its target."""
    written = yaml.safe_load(made.file.read_text())
    written["target"] |= values
    made.file.write_text(yaml.safe_dump(written))
    return made


def document(*arguments: object) -> Any:
    return json.loads(calve(*arguments, "--json").stdout)


def outcomes(made: Mirror) -> dict[str, tuple[str, str]]:
    return {each["check"]: (each["status"], each["message"]) for each in document("check", made.file)["checks"]}


def test_from_check_to_proof(copied: Mirror) -> None:
    topic, remote = topic_of(copied), copied.remote(topic_of(copied))
    assert {check: said for check, (status, said) in outcomes(copied).items() if status != "ok"} == {}
    assert outcomes(copied)["remote topics"][1] == "0 remote topics there, 1 to be created"
    planned = document("plan", copied.file)
    assert planned["bootstrapped"] is False
    assert planned["batch"]["ranges"] == [[topic, 0, 0, 20], [topic, 1, 0, 10]]
    assert planned["batch"]["topics_created"] == [remote]
    before = document("status", copied.file)
    assert (before["bootstrapped"], before["lag"], before["last_generation"]) == (False, 30, None)
    [row] = before["topics"]
    assert (row["remote"], row["exists"], row["partitions"]) == (remote, False, 2)
    assert 0 <= row["oldest_age_s"] < 600

    ran = document("run", copied.file)
    assert (ran["ended"], [batch["records"] for batch in ran["batches"]]) == ("caught up", [30])
    assert document("plan", copied.file) == {"bootstrapped": True, "batch": None}
    after = document("status", copied.file)
    assert (after["lag"], after["records"], after["findings"], after["in_flight"]) == (0, 30, [], [])
    assert after["last_generation"]["records"] == 30
    assert after["topics"][0]["oldest_age_s"] is None
    assert outcomes(copied)["pipeline"] == ("ok", "30 records copied, and nothing stands against the next batch")
    said = calve("status", copied.file).stdout
    assert "30 records copied in all" in said
    assert f"{topic}\t{remote}\t2\t30\t0" in said
    assert calve("verify", copied.file, "--deep").returncode == EXIT_DONE
    assert [value for _, value, _, _ in copied.copied(topic)] == [f"a{i}".encode() for i in range(20)]


def test_what_people_read_of_a_run(copied: Mirror) -> None:
    said = calve("run", copied.file).stdout.splitlines()
    assert said[0].startswith("batch ")
    assert ": 30 records, 70 bytes by 1 slot" in said[0]
    assert said[-1] == "30 records copied; caught up"
    assert "nothing to copy" in calve("plan", copied.file).stdout


def test_positions_are_set_while_paused_only_and_within_what_the_source_has(copied: Mirror) -> None:
    topic, file = topic_of(copied), copied.file
    refused = calve("positions", "set", file, f"{topic}/0:5")
    assert (refused.returncode, "has not run yet" in refused.stderr) == (EXIT_BAD_INPUT, True)
    copied.run()
    refused = calve("positions", "set", file, f"{topic}/0:5", "--yes")
    assert (refused.returncode, "is not paused" in refused.stderr) == (EXIT_BAD_INPUT, True)
    assert calve("pause", file, "--wait").returncode == EXIT_DONE
    refused = calve("positions", "set", file, f"{topic}/0:21", "--yes")
    assert refused.returncode == EXIT_BAD_INPUT
    assert f"{topic}[0]: offset 21 is outside of what the source has, 0 to 20" in refused.stderr
    assert calve("positions", "set", file, f"{topic}/7:0", "--yes").returncode == EXIT_BAD_INPUT
    asked = calve("positions", "set", file, f"{topic}/0:15", f"{topic}/1:10")
    assert (asked.returncode, "nobody to ask" in asked.stderr) == (EXIT_BAD_INPUT, True)
    assert f"{topic}\t0\t20\t15\t5\t0" in asked.stdout
    assert "5 offsets are copied again" in asked.stdout
    shown = {(p["topic"], p["partition"]): p["position"] for p in document("positions", "show", file)["positions"]}
    assert shown == {(topic, 0): 20, (topic, 1): 10}

    done = document("positions", "set", file, f"{topic}/0:15", "--yes", "--reason", "a test")
    assert [(each["from"], each["to"], each["again"], each["never"]) for each in done["set"]] == [(20, 15, 5, 0)]
    assert "nothing to do" in calve("positions", "set", file, f"{topic}/0:15", "--yes").stdout
    events = support.consume(copied.target.bootstrap, copied.pipeline.control_topic)
    [event] = [e for e in map(MIRROR.decode, filter(None, events)) if isinstance(e, PositionsSet)]
    assert (event.reason, event.positions) == ("a test", {copied.remote(topic): (15,)})
    assert calve("resume", file).returncode == EXIT_DONE
    assert document("run", file)["batches"][0]["records"] == 5
    assert [value for _, value, _, _ in copied.copied(topic)][-6:] == [
        b"a19",
        *(f"a{i}".encode() for i in range(15, 20)),
    ]


def test_one_cluster_and_too_many_replicas_are_refused_by_check(broker: Broker, copied: Mirror, tmp_path: Path) -> None:
    topic = topic_of(copied)
    same = mirror(broker, broker, tmp_path / "same", [topic])
    status, said = outcomes(same)["two clusters"]
    assert (status, "eu and us are one cluster" in said) == ("failed", True)
    many = with_target(mirror(broker, copied.target, tmp_path / "many", [topic]), replication_factor=3)
    checked = calve("check", many.file)
    assert checked.returncode == EXIT_STOPPED
    assert "remote topics: target.replication_factor is 3, us has 1 broker [CLV-2133]" in checked.stdout


def test_a_remote_topic_that_is_configured_otherwise_is_told(copied: Mirror) -> None:
    remote = copied.remote(topic_of(copied))
    support.create_topic(copied.target.bootstrap, remote, 2, {"message.timestamp.type": "LogAppendTime"})
    status, said = outcomes(copied)["remote topics"]
    assert status == "note"
    assert "1 remote topic there, 0 to be created; configured otherwise than the source topic: " in said
    assert "message.timestamp.type" in said


def test_a_mirror_that_would_go_round_is_refused(broker: Broker, other_broker: Broker, tmp_path: Path) -> None:
    topic = support.create_topic(broker.bootstrap, support.unique("round"), 1)
    support.produce(broker.bootstrap, topic, ["once"])
    there = with_target(mirror(broker, other_broker, tmp_path / "there", [topic]), names="{topic}")
    there.run()
    back = with_target(mirror(other_broker, broker, tmp_path / "back", [topic]), names="{topic}")
    status, said = outcomes(back)["cycle"]
    assert status == "failed"
    assert f"mirror {there.name} reads {topic} of us and writes to {topic} of eu" in said
    refused = calve("run", back.file)
    assert (refused.returncode, "each record would go round for ever" in refused.stderr) == (EXIT_BAD_INPUT, True)
    assert calve("pause", there.file).returncode == EXIT_DONE
    assert outcomes(back)["cycle"][0] == "ok"
    assert calve("run", back.file).returncode == EXIT_DONE


def test_records_of_others_in_a_remote_topic_are_told(copied: Mirror) -> None:
    copied.run()
    remote = copied.remote(topic_of(copied))
    assert document("status", copied.file)["topics"][0]["foreign"] == 0
    support.produce(copied.target.bootstrap, remote, ["not ours"], partition=1)
    assert document("status", copied.file)["topics"][0]["foreign"] == 1
    assert f"others have written to 1 partition of {remote}" in calve("status", copied.file).stdout

"""The commands of a mirror as a user meets them, between two real brokers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.slots.events import PositionsSet
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED
from calve.sink_core.mirror.state import MIRROR
from tests import support
from tests.codes import says
from tests.launch import Done, calve
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


def outcomes(made: Mirror) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in document("check", made.file)["checks"]}


def fails(outcome: dict[str, str], code: str, *values: object) -> None:
    assert (outcome["status"], outcome["code"]) == ("failed", code), outcome
    assert [value for value in values if str(value) not in outcome["message"]] == [], outcome


def refuses(done: Done, code: str, *values: object) -> None:
    assert done.returncode == EXIT_BAD_INPUT
    says(done.stderr, code, *values)


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\b\d+\b", text)]


def test_from_check_to_proof(copied: Mirror) -> None:
    topic, remote = topic_of(copied), copied.remote(topic_of(copied))
    assert {check: each for check, each in outcomes(copied).items() if each["status"] != "ok"} == {}
    assert numbers(outcomes(copied)["remote topics"]["message"]) == [0, 1]
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
    stands = outcomes(copied)["pipeline"]
    assert (stands["status"], numbers(stands["message"])) == ("ok", [30])
    assert f"{topic}\t{remote}\t2\t30\t0" in calve("status", copied.file).stdout
    assert calve("verify", copied.file, "--deep").returncode == EXIT_DONE
    assert [value for _, value, _, _ in copied.copied(topic)] == [f"a{i}".encode() for i in range(20)]


def test_what_people_read_of_a_run(copied: Mirror) -> None:
    said = calve("run", copied.file).stdout.splitlines()
    # Behind the batch's id.
    assert numbers(said[0].partition(": ")[2])[:3] == [30, 70, 1]
    assert numbers(said[-1]) == [30]
    assert topic_of(copied) not in calve("plan", copied.file).stdout


def test_positions_are_set_while_paused_only_and_within_what_the_source_has(copied: Mirror) -> None:
    topic, file = topic_of(copied), copied.file
    refuses(calve("positions", "set", file, f"{topic}/0:5"), Code.NOT_RUN_YET, copied.name)
    copied.run()
    refuses(calve("positions", "set", file, f"{topic}/0:5", "--yes"), Code.POSITIONS_AT_WORK, copied.name)
    assert calve("pause", file, "--wait").returncode == EXIT_DONE
    refuses(calve("positions", "set", file, f"{topic}/0:21", "--yes"), Code.POSITION_OUTSIDE, f"{topic}[0]", 21, 0, 20)
    refuses(calve("positions", "set", file, f"{topic}/7:0", "--yes"), Code.POSITION_OUTSIDE, f"{topic}[7]")
    asked = calve("positions", "set", file, f"{topic}/0:15", f"{topic}/1:10")
    refuses(asked, Code.NOBODY_TO_ASK, "--yes")
    assert f"{topic}\t0\t20\t15\t5\t0" in asked.stdout
    shown = {(p["topic"], p["partition"]): p["position"] for p in document("positions", "show", file)["positions"]}
    assert shown == {(topic, 0): 20, (topic, 1): 10}

    done = document("positions", "set", file, f"{topic}/0:15", "--yes", "--reason", "a test")
    assert [(each["from"], each["to"], each["again"], each["never"]) for each in done["set"]] == [(20, 15, 5, 0)]
    assert document("positions", "set", file, f"{topic}/0:15", "--yes")["set"] == []
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
    fails(outcomes(same)["two clusters"], Code.ONE_CLUSTER, "eu", "us")
    many = with_target(mirror(broker, copied.target, tmp_path / "many", [topic]), replication_factor=3)
    checked = calve("check", many.file)
    assert checked.returncode == EXIT_STOPPED
    says(checked.stdout, Code.TOO_FEW_BROKERS, "remote topics", "target.replication_factor", 3, "us", 1)


def test_a_remote_topic_that_is_configured_otherwise_is_told(copied: Mirror) -> None:
    remote = copied.remote(topic_of(copied))
    support.create_topic(copied.target.bootstrap, remote, 2, {"message.timestamp.type": "LogAppendTime"})
    outcome = outcomes(copied)["remote topics"]
    assert (outcome["status"], numbers(outcome["message"])[:2]) == ("note", [1, 0])
    assert "message.timestamp.type" in outcome["message"]


def test_a_mirror_that_would_go_round_is_refused(broker: Broker, other_broker: Broker, tmp_path: Path) -> None:
    topic = support.create_topic(broker.bootstrap, support.unique("round"), 1)
    support.produce(broker.bootstrap, topic, ["once"])
    there = with_target(mirror(broker, other_broker, tmp_path / "there", [topic]), names="{topic}")
    there.run()
    back = with_target(mirror(other_broker, broker, tmp_path / "back", [topic]), names="{topic}")
    fails(outcomes(back)["cycle"], Code.CYCLE, there.name, topic, "us", "eu")
    refuses(calve("run", back.file), Code.CYCLE, there.name, topic)
    assert calve("pause", there.file).returncode == EXIT_DONE
    assert outcomes(back)["cycle"]["status"] == "ok"
    assert calve("run", back.file).returncode == EXIT_DONE


def test_records_of_others_in_a_remote_topic_are_told(copied: Mirror) -> None:
    copied.run()
    remote = copied.remote(topic_of(copied))

    def lines() -> list[str]:
        return [line for line in calve("status", copied.file).stdout.splitlines() if remote in line]

    assert document("status", copied.file)["topics"][0]["foreign"] == 0
    before = lines()
    support.produce(copied.target.bootstrap, remote, ["not ours"], partition=1)
    assert document("status", copied.file)["topics"][0]["foreign"] == 1
    assert len(lines()) == len(before) + 1

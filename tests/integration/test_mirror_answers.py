"""A mirror's findings, each on two real brokers: it stops with both values, and every answer does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control import keep_alive
from calve.sink_core.control.pausing import pause
from calve.sink_core.errors import FindingError
from tests import mirrors, support
from tests.codes import raises
from tests.mirrors import Mirror
from tests.support import Produce, TopicFactory

Make = Callable[[str], Mirror]


@pytest.fixture
def make(broker: Broker, other_broker: Broker, tmp_path: Path) -> Make:
    return lambda topic: mirrors.mirror(broker, other_broker, tmp_path, [topic])


@pytest.fixture
def copied(make: Make, kafka_topic: TopicFactory, produce: Produce) -> tuple[Mirror, str]:
    """A mirror that has copied ten records of a topic with one partition."""
    topic = kafka_topic(1)
    produce(topic, [b"%d" % i for i in range(10)])
    mirror = make(topic)
    assert mirror.run().records == 10
    return mirror, topic


def values(records: list[mirrors.Record]) -> list[bytes | None]:
    return [value for _, value, *_ in records]


def numbers(text: str, at: str = "") -> list[int]:
    """Those that a text names, without those in the name of a partition, which it has to have."""
    assert at in text
    return [int(number) for number in re.findall(r"\d+", text.replace(at, ""))]


def stopped(mirror: Mirror) -> FindingError:
    with pytest.raises(FindingError) as found:
        mirror.run()
    return found.value


def delete_records(broker: Broker, topic: str, below: int) -> None:
    support.delete_records(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, below)


def delete(broker: Broker, topic: str) -> None:
    support.delete_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic)


def recreate(broker: Broker, topic: str) -> None:
    delete(broker, topic)
    support.create_topic(broker.bootstrap, topic)


def set_position(mirror: Mirror, topic: str, offset: int | None) -> None:
    """As somebody with the broker's tools would; None deletes it."""
    group, remote = mirror.pipeline.group, mirror.remote(topic)
    admin = AdminClient({"bootstrap.servers": mirror.target.bootstrap})
    if offset is None:
        admin.delete_consumer_groups([group])[group].result()
        return
    wanted = ConsumerGroupTopicPartitions(group, [KafkaPartition(remote, 0, offset)])
    admin.alter_consumer_group_offsets([wanted])[group].result()


def test_lost_positions_are_restored_from_the_log(copied: tuple[Mirror, str], produce: Produce) -> None:
    mirror, topic = copied
    set_position(mirror, topic, None)
    produce(topic, [b"10"])
    found = stopped(mirror)
    remote = f"{mirror.remote(topic)}[0]"
    assert (found.finding, numbers(found.stored, remote)) == ("positions-missing", [10])
    would, done = mirror.resolve("positions-missing", "restore")
    assert [numbers(each, remote) for each in would] == [[10, 10]]
    assert [numbers(each) for each in done] == [[1]]
    mirror.run()
    assert values(mirror.copied(topic)) == [b"%d" % i for i in range(11)]


def test_positions_that_were_moved_back_are_put_back(copied: tuple[Mirror, str], produce: Produce) -> None:
    mirror, topic = copied
    set_position(mirror, topic, 3)
    produce(topic, [b"10"])
    found = stopped(mirror)
    assert (found.finding, numbers(found.found), found.choices) == ("positions-changed", [3], ("restore",))
    mirror.resolve("positions-changed", "restore")
    mirror.run()
    assert mirror.copied(topic) == mirror.records(topic)


def test_positions_that_were_moved_forward_are_accepted_and_the_gap_is_shown(
    copied: tuple[Mirror, str], produce: Produce
) -> None:
    mirror, topic = copied
    produce(topic, [b"10", b"11", b"12"])
    set_position(mirror, topic, 12)
    assert stopped(mirror).choices == ("restore", "accept")
    would, _ = mirror.resolve("positions-changed", "accept")
    assert [numbers(each, f"{mirror.remote(topic)}[0]") for each in would] == [[10, 12]]
    mirror.run()
    assert values(mirror.copied(topic)) == [*(b"%d" % i for i in range(10)), b"12"]
    proof = mirror.proof()
    assert proof.proven
    assert [("positions-changed" in move, "accept" in move) for move in proof.moves] == [(True, True)]


def test_what_retention_took_unread_is_skipped(copied: tuple[Mirror, str], produce: Produce) -> None:
    mirror, topic = copied
    produce(topic, [b"%d" % i for i in range(10, 15)])
    delete_records(mirror.source, topic, 12)
    found = stopped(mirror)
    assert (found.finding, numbers(found.stored, f"{topic}[0]")) == ("records-lost-to-retention", [10])
    mirror.resolve("records-lost-to-retention", "skip")
    mirror.run()
    assert values(mirror.copied(topic)) == [*(b"%d" % i for i in range(10)), b"12", b"13", b"14"]
    assert mirror.proof().proven


def test_a_source_topic_that_was_made_anew_is_copied_from_its_beginning(
    copied: tuple[Mirror, str], produce: Produce
) -> None:
    mirror, topic = copied
    recreate(mirror.source, topic)
    produce(topic, [b"new"])
    found = stopped(mirror)
    assert (found.finding, found.subject) == ("topic-recreated", topic)
    mirror.resolve("topic-recreated", "restart")
    mirror.run()
    assert values(mirror.copied(topic)) == [*(b"%d" % i for i in range(10)), b"new"]
    assert mirror.proof().proven


@pytest.mark.parametrize(("choice", "has"), [("restart", 11), ("accept", 1)])
def test_a_remote_topic_that_was_deleted(copied: tuple[Mirror, str], produce: Produce, choice: str, has: int) -> None:
    mirror, topic = copied
    delete(mirror.target, mirror.remote(topic))
    produce(topic, [b"10"])
    found = stopped(mirror)
    assert (found.finding, found.subject) == ("remote-topic-recreated", mirror.remote(topic))
    mirror.resolve("remote-topic-recreated", choice)
    mirror.run()
    assert values(mirror.copied(topic)) == [b"%d" % i for i in range(11)][-has:]
    assert mirror.proof().proven


def test_a_control_topic_that_lost_its_events_is_rebuilt_from_the_positions(
    copied: tuple[Mirror, str], produce: Produce
) -> None:
    mirror, topic = copied
    delete_records(mirror.target, mirror.pipeline.control_topic, 3)
    produce(topic, [b"10"])
    assert stopped(mirror).finding == "control-topic-truncated"
    mirror.resolve("control-topic-truncated", "rebuild")
    mirror.run()
    assert mirror.copied(topic) == mirror.records(topic)
    proof = mirror.proof()
    assert (proof.proven, proof.records) == (True, 1)


def test_a_pause_that_could_still_be_read_goes_on_after_a_rebuild(copied: tuple[Mirror, str]) -> None:
    mirror, _topic = copied
    with mirror.plane() as plane:
        paused = pause(plane, "ana", "a move").paused
    delete_records(mirror.target, mirror.pipeline.control_topic, 3)
    mirror.resolve("control-topic-truncated", "rebuild")
    with mirror.plane() as plane:
        plane.bind()
        state = plane.log.refresh_to_end()
    assert state.paused is not None
    assert (state.paused.by, state.paused.reason) == (paused.by, paused.reason) == ("ana", "a move")


def test_a_control_topic_that_was_deleted_is_rebuilt_from_the_positions(
    copied: tuple[Mirror, str], produce: Produce
) -> None:
    mirror, topic = copied
    delete(mirror.target, mirror.pipeline.control_topic)
    produce(topic, [b"10"])
    assert stopped(mirror).finding == "control-topic-recreated"
    mirror.resolve("control-topic-recreated", "rebuild")
    mirror.run()
    assert mirror.copied(topic) == mirror.records(topic)


def test_without_positions_a_control_topic_can_t_be_rebuilt(copied: tuple[Mirror, str]) -> None:
    mirror, topic = copied
    delete_records(mirror.target, mirror.pipeline.control_topic, 3)
    set_position(mirror, topic, None)
    with raises(Code.NOT_POSSIBLE, "rebuild", f"{mirror.remote(topic)}[0]"):
        mirror.resolve("control-topic-truncated", "rebuild")


def test_a_finding_that_does_not_stand_is_not_answered(copied: tuple[Mirror, str]) -> None:
    with raises(Code.NOT_STANDING, "positions-missing"):
        copied[0].resolve("positions-missing", "restore")


def test_positions_of_partitions_in_which_nothing_moves_are_kept(
    copied: tuple[Mirror, str], produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, topic = copied
    produce(topic, [b"10"])
    mirror.run()
    with mirror.plane() as plane:
        plane.bind()
        first = plane.log.refresh_to_end().kept_ms
    monkeypatch.setattr(keep_alive, "KEEP_ALIVE_AFTER_S", 0)
    produce(topic, [b"11"])
    mirror.run()
    with mirror.plane() as plane:
        plane.bind()
        by_run = plane.log.refresh_to_end().kept_ms
        outcome = keep_alive.keep_alive(plane)
        state = plane.log.refresh_to_end()
        positions = plane.group.positions(state.partitions)
    assert first is not None
    assert by_run is not None
    assert state.kept_ms is not None
    assert first < by_run < state.kept_ms
    assert (outcome.changed, outcome.after) == (True, {"offsets": 2})
    assert {at: position.offset for at, position in positions.items()} == state.partitions
    assert mirror.copied(topic) == mirror.records(topic)

"""Which topics are copied, what their remote topics are like, and where a new mirror begins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.control.pausing import pause
from calve.sink_core.kafka.compat import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from calve.sink_core.mirror.status import status
from calve.sink_core.mirror.verify import verify
from calve.sink_core.offsets import TopicPartition
from tests import support
from tests.codes import raises, says
from tests.integration.conftest import NewMirror
from tests.mirror_flow import MirrorFlow, add_partitions, partitions
from tests.support import TIMEOUT_S, TopicFactory, delete_records, delete_topic, topic_config

LONG = str(2**63 - 1)


def set_config(admin: AdminClient, topic: str, **values: str) -> None:
    operation = AlterConfigOpType.SET
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=operation) for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def of(config: Mapping[str, str | None], *names: str) -> list[str | None]:
    return [config[name.replace("_", ".")] for name in names]


def test_a_remote_topic_is_made_before_its_first_record_as_the_source_topic_is(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    config = {"cleanup.policy": "compact", "max.message.bytes": "7000000", "min.insync.replicas": "1"}
    source = kafka_topic(5, {**config, "message.timestamp.type": "LogAppendTime"})
    mirror = new_mirror(source, extra={"target": {"config": {"segment.ms": 600_000, "preallocate": True}}})
    mirror.run()
    remote = mirror.remote(source)
    assert partitions(mirror.target_admin, remote) == [0, 1, 2, 3, 4]
    assert of(
        topic_config(mirror.target, remote), "cleanup_policy", "max_message_bytes", "segment_ms", "preallocate"
    ) == [
        "compact",
        "7000000",
        "600000",
        "true",
    ]
    times = ("message_timestamp_type", "message_timestamp_before_max_ms", "message_timestamp_after_max_ms")
    assert of(topic_config(mirror.target, remote), *times) == ["CreateTime", LONG, LONG]
    # Every partition has a position, which the target keeps although nothing was copied.
    assert mirror.state().partitions == {TopicPartition(remote, p): 0 for p in range(5)}
    assert mirror.positions().keys() == mirror.state().partitions.keys()


def test_later_changes_of_the_configuration_follow_and_what_only_the_remote_topic_has_stays(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    source = kafka_topic(1, {"max.message.bytes": "2000000"})
    mirror = new_mirror(source, extra={"target": {"config": {"segment.bytes": 20_000_000}}})
    mirror.run()
    remote = mirror.remote(source)
    set_config(mirror.target_admin, remote, retention_bytes="12345678", max_message_bytes="5000000")
    set_config(
        mirror.source_admin,
        source,
        retention_ms="7654321",
        segment_bytes="30000000",
        min_insync_replicas="2",
        unclean_leader_election_enable="true",
        max_message_bytes="3000000",
    )
    # With nothing to copy.
    assert mirror.run().batches == []
    synced = topic_config(mirror.target, remote)
    names = ("retention_ms", "retention_bytes", "segment_bytes", "max_message_bytes", "min_insync_replicas")
    assert of(synced, *names) == ["7654321", "12345678", "20000000", "5000000", "1"]
    assert synced["unclean.leader.election.enable"] == "false"
    set_config(mirror.source_admin, source, max_message_bytes="6000000")
    support.produce(mirror.source, source, [b"x"])
    mirror.run()
    assert of(topic_config(mirror.target, remote), "max_message_bytes") == ["6000000"]
    assert mirror.assert_same() == 1


def test_a_mirror_that_syncs_no_configuration_leaves_it(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(), extra={"target": {"sync_config": False}})
    mirror.run()
    [source] = mirror.topics
    before = topic_config(mirror.target, mirror.remote(source))
    set_config(mirror.source_admin, source, retention_ms="7654321")
    mirror.run()
    assert topic_config(mirror.target, mirror.remote(source)) == before


def test_a_value_that_the_target_refuses_is_named(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(), extra={"target": {"config": {"retention.ms": "soon"}}})
    with raises(Code.KAFKA_SETTING, "retention.ms"):
        mirror.run()


def test_partitions_added_at_the_source_follow_and_are_copied_from_their_beginning(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(2), extra={"source": {"start": "latest"}})
    [source] = mirror.topics
    support.produce(mirror.source, source, [b"before"])
    mirror.run()
    assert mirror.copied(source) == []
    add_partitions(mirror.source_admin, source, 4)
    support.produce(mirror.source, source, [b"new"] * 3, partition=3)
    mirror.run()
    assert partitions(mirror.target_admin, mirror.remote(source)) == [0, 1, 2, 3]
    assert [value for _, value, *_ in mirror.copied(source, 3)] == [b"new"] * 3
    # A remote topic may have more: those stay empty.
    add_partitions(mirror.target_admin, mirror.remote(source), 6)
    support.produce(mirror.source, source, [b"more"], partition=2)
    mirror.run()
    assert [value for _, value, *_ in mirror.copied(source, 2)] == [b"more"]
    assert mirror.copied(source, 5) == []


def test_topics_by_a_pattern_come_and_go_and_none_that_is_excluded_or_internal(new_mirror: NewMirror) -> None:
    mark = support.unique("shop")
    there = [
        f"{mark}.orders",
        f"{mark}.tmp.x",
        f"{mark}.internal",
        f"{mark}.heartbeats",
        f"us.{mark}.back",
        f"{mark}.us.x",
    ]
    there += [f"calve.test.{mark}.control", f"{mark}.us"]
    mirror = new_mirror(extra={"source": {"topics_regex": rf".*{mark}.*", "exclude": [rf"{mark}\.tmp.*"]}})
    for topic in there:
        support.produce(mirror.source, support.create_topic(mirror.source, topic), [b"x"])
    mirror.run()

    def remotes() -> set[str]:
        return {topic for topic in mirror.target_admin.list_topics(timeout=TIMEOUT_S).topics if mark in topic}

    # One that only ends in the target's name is no topic of the target's.
    assert remotes() == {f"eu.{mark}.orders", f"eu.{mark}.us"}
    late = support.create_topic(mirror.source, f"{mark}.late")
    support.produce(mirror.source, late, [b"1", b"2"])
    delete_topic(mirror.source_admin, f"{mark}.orders")
    report = mirror.run()
    assert (report.ended, report.records) == ("caught up", 2)
    assert remotes() == {f"eu.{mark}.orders", f"eu.{mark}.us", f"eu.{mark}.late"}
    # What was copied of a topic that is gone stays.
    assert len(mirror.copied(f"{mark}.orders")) == 1


def test_a_topic_that_is_named_and_not_there_stands_still_alone(
    kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(), kafka_topic())
    mirror.run()
    delete_topic(mirror.source_admin, mirror.topics[1])
    support.produce(mirror.source, mirror.topics[0], [b"x"])
    [blocker] = mirror.run().blockers
    assert (blocker.where, blocker.since_ms is not None) == (mirror.topics[1], True)
    says(blocker.why, Code.NO_SUCH_TOPIC, "eu")
    left = mirror.but(topics=mirror.topics[:1])
    support.produce(mirror.source, mirror.topics[0], [b"y"])
    left.run()
    assert left.assert_same() == 2


def test_a_first_run_wants_every_topic_that_is_named(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(), support.unique("nowhere"))
    with raises(Code.NO_SUCH_TOPIC, mirror.topics[1], "eu"):
        mirror.run()


def test_a_remote_topic_can_have_any_name_with_the_topics(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    mirror = new_mirror(kafka_topic(), extra={"target": {"names": "{topic}"}})
    support.produce(mirror.source, mirror.topics[0], [b"x"])
    mirror.run()
    assert mirror.remote(mirror.topics[0]) == mirror.topics[0]
    assert mirror.assert_same() == 1


DAY_MS = 86_400_000


def five(mirror: MirrorFlow) -> None:
    """Five records, a day apart, of which retention has taken the first."""
    [topic] = mirror.topics
    values = [b"%d" % n for n in range(5)]
    support.produce(mirror.source, topic, values, timestamps=[n * DAY_MS + 1 for n in range(5)])
    delete_records(mirror.source_admin, topic, 1)


@pytest.mark.parametrize(
    ("start", "first"),
    [("earliest", 1), ("latest", 5), ({"timestamp": datetime.fromtimestamp(2.5 * DAY_MS / 1000, UTC).isoformat()}, 3)],
    ids=["earliest", "latest", "timestamp"],
)
def test_a_new_mirror_begins_where_its_file_says(
    start: Any, first: int, kafka_topic: TopicFactory, new_mirror: NewMirror
) -> None:
    mirror = new_mirror(kafka_topic(), extra={"source": {"start": start}})
    five(mirror)
    mirror.run()
    support.produce(mirror.source, mirror.topics[0], [b"5"])
    mirror.run()
    assert [value for _, value, *_ in mirror.copied(mirror.topics[0])] == [b"%d" % n for n in range(first, 6)]
    assert mirror.state().begins == {TopicPartition(mirror.remote(*mirror.topics), 0): first}


def test_a_new_mirror_begins_where_a_group_stands(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    group = support.unique("g")
    mirror = new_mirror(kafka_topic(), extra={"source": {"start": {"group": group}}})
    five(mirror)
    with raises(Code.START_GROUP, group):
        mirror.run()
    at = ConsumerGroupTopicPartitions(group, [KafkaPartition(mirror.topics[0], 0, 4)])
    for done in mirror.source_admin.alter_consumer_group_offsets([at]).values():
        done.result(TIMEOUT_S)
    mirror.run()
    assert [value for _, value, *_ in mirror.copied(mirror.topics[0])] == [b"4"]


def test_a_mirror_back_begins_behind_what_the_other_wrote(kafka_topic: TopicFactory, new_mirror: NewMirror) -> None:
    same = {"target": {"names": "{topic}"}}
    there = new_mirror(kafka_topic(2), extra=same)
    [topic] = there.topics
    support.produce(there.source, topic, [b"1", b"2"])
    there.run()
    extra = {
        **same,
        "source": {"start": {"mirror": there.name}, "cluster": "b"},
        "target": {"names": "{topic}", "cluster": "a"},
    }
    back = MirrorFlow.create(there.files.parent, there.target, there.source, topic, extra=extra)
    with raises(Code.START_MIRROR, there.name):
        back.run()
    with there.plane() as plane:
        plane.bind()
        pause(plane, "test", "failing over")
    support.produce(there.target, topic, [b"3"])
    support.produce(there.target, topic, [b"4"], partition=1)
    back.run()
    for partition, expected in ((0, [b"1", b"2", b"3"]), (1, [b"4"])):
        assert support.consume(there.source, topic, partition=partition) == expected


def test_topics_that_are_named_are_copied_or_refused_by_name(new_mirror: NewMirror) -> None:
    mark = support.unique("n")
    named = [f"{mark}-internal", f"{mark}.internal", f"{mark}.heartbeats", f"mm2-{mark}"]
    mirror = new_mirror(*named)
    for topic in named:
        support.produce(mirror.source, support.create_topic(mirror.source, topic), [b"x"])
    assert (mirror.run().ended, mirror.assert_same()) == ("caught up", 4)
    for never in (f"orders.us.{mark}", f"calve.test.{mark}.control", "checkpoints.internal", "__consumer_offsets"):
        refused = mirror.but(topics=(*named, never))
        with raises(Code.NEVER_COPIED, never):
            refused.run()
        with raises(Code.NEVER_COPIED, never), refused.plane() as plane:
            status(plane)


def test_topics_that_a_pattern_meets_and_that_are_left_out_are_told(new_mirror: NewMirror) -> None:
    mark = support.unique("n")
    mirror = new_mirror(extra={"source": {"topics_regex": rf".*{mark}.*"}})
    left = [f"{mark}.internal", f"us.{mark}.back", f"calve.test.{mark}.control"]
    for topic in [f"{mark}.orders", *left]:
        support.produce(mirror.source, support.create_topic(mirror.source, topic), [b"x"])
    assert mirror.run().ended == "caught up"
    with mirror.plane() as plane:
        assert sorted(status(plane).left_out) == sorted(left)
        assert sorted(each.subject for each in verify(plane).not_checked) == sorted(left)

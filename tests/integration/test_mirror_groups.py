"""Consumer groups that move to the target of a mirror, and back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control import pausing
from calve.sink_core.failpoints import VARIABLE, FailpointReached
from calve.sink_core.java import find_java
from calve.sink_core.mirror.groups import GroupOffset, GroupSync, look
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror
from tests import support
from tests.codes import says
from tests.peers.mirror_maker import class_path
from tests.support import TIMEOUT_S
from tests.two_clusters import Member, mirror, mirror_file, produce_transactions

PARTITIONS = 2
PROTOCOLS = ("classic", "consumer")


@pytest.fixture
def topic(other_broker: Broker) -> str:
    return support.create_topic(other_broker.bootstrap, support.unique("orders"), PARTITIONS)


@pytest.fixture
def group() -> str:
    return support.unique("group")


@pytest.fixture
def pipeline(other_broker: Broker, broker: Broker, topic: str, group: str, tmp_path: Path) -> MirrorPipeline:
    return mirror(tmp_path, other_broker, broker, [topic], groups={"include": [group]})


def run(pipeline: MirrorPipeline) -> list[GroupOffset]:
    """Where the groups are after a run."""
    with MirrorPlane(pipeline) as plane:
        return run_mirror(plane).groups


def commit(broker: Broker, group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
    for topic, partition, offset in offsets:
        support.commit_offset(broker.bootstrap, group, topic, offset, partition)


def committed(broker: Broker, group: str, topic: str) -> list[int]:
    return [support.committed_offset(broker.bootstrap, group, topic, p) for p in range(PARTITIONS)]


def ends(broker: Broker, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)]
    consumer.close()
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_at_the_target_nothing_again_and_nothing_skipped(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str, protocol: str
) -> None:
    written = produce_transactions(other_broker, topic, [5, 1, 7, 3, 2, 9], partitions=PARTITIONS)
    run(pipeline)
    written += produce_transactions(other_broker, topic, [4, 6, 2, 8], partitions=PARTITIONS)
    with Member(other_broker, group, topic, protocol=protocol) as member:
        first = member.read(43)
    places = run(pipeline)
    assert {each.done for each in places} == {True}
    with Member(broker, group, pipeline.remote_of(topic), protocol=protocol) as member:
        rest = member.read()
    assert len(first) == 43
    assert Counter(first + rest) == Counter(written)


def test_a_remote_topic_that_is_gone_stops_no_other_group_s_offsets(
    pipeline: MirrorPipeline, other_broker: Broker, broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    more, admin = support.unique("more"), AdminClient({"bootstrap.servers": broker.bootstrap})
    support.create_topic(other_broker.bootstrap, more, 1)
    wide = mirror(tmp_path, other_broker, broker, [topic, more], groups={"include": [f"{group}.*"]})
    for name in (topic, more):
        support.produce(other_broker.bootstrap, name, [b"1", b"2"])
    with MirrorPlane(wide) as plane:
        run_mirror(plane)
        commit(other_broker, group, [(topic, 0, 1)])
        commit(other_broker, f"{group}2", [(more, 0, 1)])
        [remote] = {each.remote for each in look(plane).offsets if each.topic == more}
        support.delete_topic(admin, remote)
        places = {each.topic: each for each in look(plane).offsets}
    assert places[topic].target_offset == 1
    assert places[more].target_offset is None
    says(places[more].why_not, Code.NO_SUCH_TOPIC, remote)


def test_who_has_read_all_is_put_at_the_end_and_who_has_read_nothing_at_the_first_record(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    produce_transactions(other_broker, topic, [3, 2], partitions=PARTITIONS)
    end = ends(other_broker, topic)[0]
    commit(other_broker, group, [(topic, 0, end), (topic, 1, 0)])
    run(pipeline)
    remote = pipeline.remote_of(topic)
    support.until_stable(broker.bootstrap, remote)
    run(pipeline)
    # Behind the marker of the slot's transaction too: no lag is left there.
    assert committed(broker, group, remote) == [ends(broker, remote)[0], 0]


def test_who_has_read_all_is_put_behind_it_while_a_transaction_of_others_hides_it(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    remote = support.create_topic(broker.bootstrap, pipeline.remote_of(topic), PARTITIONS)
    others = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": support.unique("others")})
    others.init_transactions(TIMEOUT_S)
    others.begin_transaction()
    others.produce(remote, b"theirs", partition=0)
    others.flush()
    support.produce(other_broker.bootstrap, topic, [b"1", b"2", b"3"])
    commit(other_broker, group, [(topic, 0, 3)])
    [place] = run(pipeline)
    assert ends(broker, remote)[0] == 0
    assert (place.target_offset, place.done) == (4, True)
    others.abort_transaction(TIMEOUT_S)
    with Member(broker, group, remote) as member:
        assert member.read() == []


def test_an_offset_that_is_yet_to_be_copied_is_put_behind_what_is_there(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    support.produce(other_broker.bootstrap, topic, [b"1", b"2", b"3"])
    run(pipeline)
    support.until_stable(broker.bootstrap, pipeline.remote_of(topic))
    support.produce(other_broker.bootstrap, topic, [b"4", b"5"])
    commit(other_broker, group, [(topic, 0, 5)])
    remote = pipeline.remote_of(topic)
    with MirrorPlane(pipeline) as plane:
        plane.read_only()
        (place,) = GroupSync(plane).sync().offsets
    assert (place.source_offset, place.target_offset, place.done) == (5, ends(broker, remote)[0], True)
    with Member(broker, group, remote) as member:
        assert member.read() == []


def test_a_group_never_goes_backwards_and_one_with_a_consumer_is_left_alone(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    support.produce(other_broker.bootstrap, topic, [b"%d" % n for n in range(10)])
    commit(other_broker, group, [(topic, 0, 4)])
    run(pipeline)
    remote = pipeline.remote_of(topic)
    assert committed(broker, group, remote)[0] == 4
    with Member(broker, group, remote) as member:
        member.read(3)
        commit(other_broker, group, [(topic, 0, 9)])
        (busy,) = run(pipeline)
        assert (busy.done, busy.found, bool(busy.why_not)) == (False, 7, True)
    commit(other_broker, group, [(topic, 0, 5)])
    (further,) = run(pipeline)
    assert (further.done, "7" in further.why_not) == (False, True)
    assert committed(broker, group, remote)[0] == 7
    commit(other_broker, group, [(topic, 0, 8)])
    (forward,) = run(pipeline)
    assert (forward.done, committed(broker, group, remote)[0]) == (True, 8)


def test_records_that_others_wrote_behind_the_last_are_not_skipped(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    support.produce(other_broker.bootstrap, topic, [b"1", b"2"])
    run(pipeline)
    remote = pipeline.remote_of(topic)
    support.produce(broker.bootstrap, remote, [b"somebody's"])
    commit(other_broker, group, [(topic, 0, 2)])
    (place,) = run(pipeline)
    assert (place.target_offset, place.done) == (2, True)


def test_what_the_log_has_no_longer_is_said(
    other_broker: Broker, pipeline: MirrorPipeline, topic: str, group: str
) -> None:
    support.produce(other_broker.bootstrap, topic, [b"1", b"2", b"3"])
    commit(other_broker, group, [(topic, 0, 1)])
    with MirrorPlane(pipeline) as plane:
        run_mirror(plane)
        state = plane.log.state
        state.copied.clear()
        (old,) = look(plane).offsets
        assert (old.target_offset, bool(old.why_not)) == (None, True)
        state.begins = dict.fromkeys(state.begins, 2)
        (before,) = look(plane).offsets
        assert (before.target_offset, "2" in before.why_not) == (None, True)


def test_a_sync_that_was_cut_short_is_done_again(
    other_broker: Broker,
    broker: Broker,
    pipeline: MirrorPipeline,
    topic: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    support.produce(other_broker.bootstrap, topic, [b"1", b"2", b"3"])
    commit(other_broker, group, [(topic, 0, 2)])
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, "groups.after-sync=raise")
        with pytest.raises(FailpointReached):
            run(pipeline)
    assert committed(broker, group, pipeline.remote_of(topic))[0] == 2
    (place,) = run(pipeline)
    assert (place.found, place.done) == (2, True)


def test_a_group_goes_back_with_what_it_has_read_at_the_target(
    other_broker: Broker, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """One that has not read all that came, and one that has read what was written at the target since."""
    slow, quick = support.unique("slow"), support.unique("quick")
    both = {"include": [slow, quick]}
    there = mirror(tmp_path, other_broker, broker, [topic], target={"names": "{topic}"}, groups=both)
    written = produce_transactions(other_broker, topic, [5, 1, 7, 3, 2, 9], partitions=PARTITIONS)
    with Member(other_broker, slow, topic) as member:
        read = {slow: member.read(9)}
    run(there)
    with MirrorPlane(there) as plane:
        pausing.pause(plane, "me", "moves")
        GroupSync(plane).sync()
    late = produce_transactions(other_broker, topic, [2], partitions=PARTITIONS)
    new = produce_transactions(broker, topic, [6, 4], partitions=PARTITIONS)
    with Member(broker, slow, topic) as member:
        # Within what came from the source, whichever partitions it has read.
        read[slow] += member.read(2)
    with Member(broker, quick, topic) as member:
        read[quick] = member.read(len(written) + 5)
    back = mirror(
        tmp_path,
        other_broker,
        broker,
        [topic],
        back=True,
        source={"start": {"mirror": there.name}},
        target={"names": "{topic}"},
        groups=both,
    )
    places = run(back)
    assert {each.done for each in places} == {True}
    for group in (slow, quick):
        with Member(other_broker, group, topic) as member:
            read[group] += member.read()
    assert Counter(read[slow]) == Counter(written + late + new)
    # It has read on at the target, and not what never got there.
    unread = Counter(written + late + new) - Counter(read[quick])
    assert not Counter(read[quick]) - Counter(written + late + new)
    assert not unread - Counter(late)


def test_groups_are_shown_and_put_in_place_by_hand(
    other_broker: Broker, broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    file = mirror_file(tmp_path, other_broker, broker, [topic], groups={"include": [f"{group}.*"]})
    support.produce(other_broker.bootstrap, topic, [b"1", b"2", b"3"])
    early = CliRunner().invoke(app, ["groups", "show", str(file), "--json"])
    assert (early.exit_code, json.loads(early.stdout)["code"]) == (2, Code.NOT_RUN_YET)
    loaded = load(file)
    assert isinstance(loaded, MirrorPipeline)
    run(loaded)
    commit(other_broker, group, [(topic, 0, 2)])
    for words in (["show"], ["sync", "--dry-run"]):
        shown = CliRunner().invoke(app, ["groups", *words, str(file), "--json"])
        (place,) = json.loads(shown.stdout)["groups"]
        assert (place["group"], place["source_offset"], place["lag"]) == (group, 2, 1)
        assert (place["target_offset"], place["found"], place["done"], place["why_not"]) == (2, None, False, "")
    done = CliRunner().invoke(app, ["groups", "sync", str(file), "--json"])
    assert [place["done"] for place in json.loads(done.stdout)["groups"]] == [True]
    assert committed(broker, group, f"eu.{topic}")[0] == 2


@pytest.fixture
def jvm() -> Generator[Any]:
    """One with MirrorMaker 2's own client."""
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port = launch_gateway(classpath=class_path(), jarpath=str(py4j), java_path=str(find_java()), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


def test_the_client_of_mirror_maker_reads_where_groups_go_on(
    other_broker: Broker, broker: Broker, pipeline: MirrorPipeline, topic: str, group: str, jvm: Any, tmp_path: Path
) -> None:
    alias = support.unique("eu")
    pipeline = mirror(tmp_path, other_broker, broker, [topic], source={"cluster": alias}, groups={"include": [group]})
    produce_transactions(other_broker, topic, [5, 1, 7, 3], partitions=PARTITIONS)
    with Member(other_broker, group, topic) as member:
        member.read(13)
    expected = {(p.remote, p.partition): p.target_offset for p in run(pipeline)}
    assert expected
    client = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", broker.bootstrap)
    wait = jvm.java.time.Duration.ofSeconds(30)
    found = client.translateOffsets(settings, alias, group, wait)
    places = {(e.getKey().topic(), e.getKey().partition()): e.getValue().offset() for e in found.entrySet()}
    assert places == expected
    assert alias in set(client.upstreamClusters(settings))
    # Written again only where it has changed.
    checkpoints = f"{alias}.checkpoints.internal"
    before = len(support.messages(broker.bootstrap, checkpoints))
    with MirrorPlane(pipeline) as plane:
        plane.read_only()
        sync = GroupSync(plane)
        sync.sync()
        sync.sync()
    assert len(support.messages(broker.bootstrap, checkpoints)) == before + len(expected)

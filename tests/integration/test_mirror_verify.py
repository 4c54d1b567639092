"""The proof of a mirror sees what is missing, changed or foreign on either cluster, and says where."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import EXIT_STOPPED
from calve.sink_core.mirror.verify import MirrorProof, verify
from tests import mirrors, support
from tests.integration.test_mirror_answers import delete_records
from tests.launch import calve
from tests.mirrors import Mirror
from tests.support import Produce, TopicFactory


@pytest.fixture
def copied(
    broker: Broker, other_broker: Broker, tmp_path: Path, kafka_topic: TopicFactory, produce: Produce
) -> tuple[Mirror, str]:
    """Two generations of a topic with two partitions: ten and five records in one, three in the other."""
    topic = kafka_topic(2)
    mirror = mirrors.mirror(broker, other_broker, tmp_path, [topic])
    produce(topic, [b"%d" % i for i in range(10)])
    mirror.run()
    produce(topic, [b"%d" % i for i in range(5)])
    produce(topic, [b"a", b"b", b"c"], partition=1)
    mirror.run()
    return mirror, topic


def counts(proof: MirrorProof) -> list[tuple[int, int, int, int]]:
    return [(each.records, each.checked, each.source_checked, each.expired) for each in proof.partitions]


def faults(proof: MirrorProof) -> list[str]:
    return [fault for each in proof.partitions for fault in each.faults]


def test_everything_is_proven_on_both_clusters(copied: tuple[Mirror, str]) -> None:
    proof = copied[0].proof()
    assert (proof.proven, counts(proof)) == (True, [(15, 15, 15, 0), (3, 3, 3, 0)])


def test_a_mirror_that_has_not_run_has_nothing_to_prove(broker: Broker, other_broker: Broker, tmp_path: Path) -> None:
    made = mirrors.mirror(broker, other_broker, tmp_path, ["no-such-topic"])
    for more in ((), ("--deep",)):
        said = calve("verify", made.file, "--json", *more)
        assert (said.returncode, json.loads(said.stdout)["verdict"]) == (EXIT_STOPPED, "nothing-to-prove")


def test_the_target_alone_is_proven_once_the_source_has_expired(copied: tuple[Mirror, str]) -> None:
    mirror, topic = copied
    delete_records(mirror.source, topic, 12)
    proof = mirror.proof()
    assert (proof.proven, counts(proof)) == (True, [(15, 15, 0, 0), (3, 3, 3, 0)])


def test_what_expired_on_the_target_is_said(copied: tuple[Mirror, str]) -> None:
    mirror, topic = copied
    delete_records(mirror.target, mirror.remote(topic), 4)
    proof = mirror.proof()
    assert (proof.proven, counts(proof)) == (True, [(15, 5, 15, 10), (3, 3, 3, 0)])


def test_records_of_others_are_found_wherever_they_lie(copied: tuple[Mirror, str]) -> None:
    mirror, topic = copied
    support.produce(mirror.target.bootstrap, mirror.remote(topic), [b"foreign", b"foreign"])
    proof = mirror.proof()
    assert not proof.proven
    [fault] = faults(proof)
    place, _, said = fault.rpartition(": ")
    assert (f"{mirror.remote(topic)}[0]" in place, re.findall(r"\d+", said)) == (True, ["2"])


def test_a_record_that_is_not_what_was_copied_is_found_on_both_clusters(copied: tuple[Mirror, str]) -> None:
    mirror, _topic = copied
    with mirror.plane() as plane:
        assert plane.read_only()
        ranges = plane.log.refresh_to_end().copied
        # Events as if other records had been copied: what is there on both sides then differs from them.
        ranges.update({at: [replace(part, digest=part.digest ^ 1) for part in parts] for at, parts in ranges.items()})
        proof = verify(plane, deep=True)
    assert not proof.proven
    assert ["source" in fault for fault in faults(proof)] == [False, False, True, True, False, True]

"""What is done to each peer, the same to all, and the test that holds Calve to its outcome in every build."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.peers.peer import BAD_JSON, BAD_VALUE, PARTITIONS, Peer

FIRST = 5_000
"""Records for each partition that are there from the start; a commit of them takes a while."""
MORE = 1_000
KILLS = 6
SERIES = 3
BURST_TICKS = 10
TICK_S = 0.2


@dataclass(frozen=True, slots=True)
class Stage:
    """What scenarios are played with; `spark` gives the address of a Spark Connect server."""

    chance: random.Random
    spark: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`test` is what fails if Calve's outcome were another."""

    name: str
    what: str
    play: Callable[[Peer, Stage], None]
    test: str


def first_commit(peer: Peer, _: Stage) -> None:
    peer.produce(FIRST)
    peer.die_in_the_first_commit()
    _and_more(peer)


def kills(peer: Peer, stage: Stage) -> None:
    peer.produce(MORE)
    peer.take_in()
    peer.rest()
    for _ in range(KILLS):
        peer.produce(MORE)
        peer.die_at_random(stage.chance)
    _and_more(peer)


def rolled_back(peer: Peer, _: Stage) -> None:
    peer.produce(MORE)
    peer.take_in()
    kept = peer.head
    _and_more(peer)
    peer.rest()
    peer.roll_back(kept)
    _and_more(peer)


def table_recreated(peer: Peer, _: Stage) -> None:
    _has_taken_in(peer, times=1)
    peer.recreate_table()
    _and_more(peer)


def control_topic_recreated(peer: Peer, _: Stage) -> None:
    _has_taken_in(peer, times=3)
    peer.recreate_control_topic()
    _and_more(peer)


def group_reset(peer: Peer, _: Stage) -> None:
    _has_taken_in(peer, times=1)
    peer.reset_group(peer.source_group, peer.topic, PARTITIONS)
    _and_more(peer)


def offsets_expired(peer: Peer, _: Stage) -> None:
    _has_taken_in(peer, times=1)
    peer.forget_offsets()
    _and_more(peer)


def snapshots_expired(peer: Peer, stage: Stage) -> None:
    _has_taken_in(peer, times=2)
    peer.compact_and_expire(stage.spark())
    peer.reset_coordinator()
    _and_more(peer)


def bad_json(peer: Peer, _: Stage) -> None:
    _bad(peer, BAD_JSON)


def bad_value(peer: Peer, _: Stage) -> None:
    _bad(peer, BAD_VALUE)


def idle_partitions(peer: Peer, _: Stage) -> None:
    peer.produce(MORE)
    peer.begin()
    for _again in range(SERIES):
        peer.produce(MORE, partitions=[0])
        peer.delays_s.append(peer.await_all())


def burst(peer: Peer, _: Stage) -> None:
    peer.produce(MORE)
    peer.begin()
    for _again in range(SERIES):
        for _tick in range(BURST_TICKS):
            peer.produce(MORE // BURST_TICKS)
            time.sleep(TICK_S)
        peer.delays_s.append(peer.await_all())


def _has_taken_in(peer: Peer, *, times: int) -> None:
    """It has committed as often, and rests."""
    for _ in range(times):
        _and_more(peer)
    peer.rest()


def _and_more(peer: Peer) -> None:
    peer.produce(MORE)
    peer.take_in()


def _bad(peer: Peer, value: bytes) -> None:
    peer.produce(MORE)
    peer.take_in()
    peer.produce_bad(value)
    _and_more(peer)
    peer.tolerate()


_FAULTS = "tests/e2e/faults"
_RESOLVE = "tests/integration/test_resolve"
SCENARIOS = (
    Scenario(
        "first-commit",
        "killed in its first commit, files announced",
        first_commit,
        f"{_FAULTS}/test_failpoints.py",
    ),
    Scenario("rolled-back", "table rolled back", rolled_back, f"{_RESOLVE}_tables.py"),
    Scenario("table-recreated", "table dropped and created again", table_recreated, f"{_RESOLVE}_tables.py"),
    Scenario(
        "control-topic-recreated",
        "control topic deleted and created again",
        control_topic_recreated,
        f"{_RESOLVE}_control.py",
    ),
    Scenario("group-reset", "consumer group reset to the beginning", group_reset, f"{_RESOLVE}_positions.py"),
    Scenario("offsets-expired", "offsets of its groups expired", offsets_expired, f"{_RESOLVE}_positions.py"),
    Scenario(
        "snapshots-expired",
        "compaction, expiry of all snapshots but one, then the coordinator's group reset",
        snapshots_expired,
        f"{_RESOLVE}_positions.py",
    ),
    Scenario("bad-json", "a record that is no JSON", bad_json, "tests/integration/test_hostile.py"),
    Scenario("bad-value", "a record with text in a number's field", bad_value, "tests/integration/test_hostile.py"),
    Scenario("kills", f"{KILLS} kills at random moments", kills, f"{_FAULTS}/test_kills.py"),
    Scenario(
        "idle-partitions",
        "records for one partition of four: seconds until they are visible",
        idle_partitions,
        "tests/integration/test_run.py",
    ),
    Scenario(
        "burst", "a burst of two seconds: seconds until its last is visible", burst, "tests/integration/test_run.py"
    ),
)

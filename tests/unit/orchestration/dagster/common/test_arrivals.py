"""Up to when all has arrived, by looks at a source and a log, and what the objectives are by that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.orchestration.dagster.common.arrivals import ALL, BLIND_S, Arrivals, Lacks, Memory
from calve.orchestration.dagster.common.trigger import Sight
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG
from calve.sink_core.config.common import Objectives
from calve.sink_core.offsets import TopicPartition
from tests.codes import names

NOW = 1_800_000_000.0
TICK_S = 30.0
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
OBJECTIVES = Objectives.model_validate({"freshness": "1m", "lag": 10})


def seen(lag: int) -> Sight:
    return Sight(lag=lag, end=100, bootstrapped=True)


@dataclass
class World:
    """Looks at one source of two partitions with one table, each half a minute after the last."""

    arrivals: Arrivals = field(default_factory=Arrivals)
    now_s: float = NOW

    def look(self, ends: tuple[int, int], positions: tuple[int, int], log_end: int, lacks: int | None = None) -> float:
        """Seconds since which something may be missing; of a table that no look knows of, all of them."""
        self.now_s += TICK_S
        at = lambda pair: dict(zip((FIRST, SECOND), pair, strict=True))  # noqa: E731
        self.arrivals.look(self.now_s, at(ends), at(positions), log_end, {"db.t": Lacks(lacks)})
        return self.now_s - self.arrivals.through_s.get("db.t", 0.0)


def test_a_table_that_gets_nothing_new_has_all_at_each_look() -> None:
    world = World()
    assert [world.look((5, 5), (5, 5), 9) for _ in range(200)] == [0.0] * 200


def test_what_stays_pending_is_as_old_as_the_last_look_at_which_it_was_not_there() -> None:
    world = World()
    world.look((5, 5), (5, 5), 9)
    assert [world.look((6 + i, 5), (5, 5), 9) for i in range(5)] == [TICK_S * i for i in range(1, 6)]


def test_under_a_steady_stream_something_is_always_pending_and_nothing_is_old() -> None:
    """Each look finds published what was there at the one before; the other partition is idle."""
    world = World()
    ages = [world.look((10 * i + 10, 5), (10 * i, 5), i) for i in range(1, 300)]
    assert max(ages[1:]) == TICK_S


def test_a_partition_that_is_ahead_does_not_make_up_for_one_that_is_behind() -> None:
    world = World()
    world.look((5, 5), (5, 5), 9)
    assert [world.look((50 + i, 6), (50 + i, 5), 9) for i in range(3)][-1] == 3 * TICK_S


def test_what_is_published_is_missing_until_the_table_has_it() -> None:
    world = World()
    world.look((5, 5), (5, 5), 9)
    assert world.look((6, 5), (6, 5), 12, lacks=10) == TICK_S
    assert world.look((6, 5), (6, 5), 12, lacks=10) == 2 * TICK_S
    assert world.look((6, 5), (6, 5), 14) == 0


def test_a_table_that_always_lacks_the_last_batch_has_the_ones_before() -> None:
    """As with commits by the minute, where each look comes between a publish and its commit."""
    world, ages = World(), list[float]()
    for i in range(1, 100):
        ages.append(world.look((10 * i, 5), (10 * i, 5), 10 * i, lacks=10 * i - 1))
    assert max(ages[2:]) == TICK_S


def test_a_long_standstill_is_followed_by_marks_that_still_tell() -> None:
    world = World()
    for i in range(1_000):
        world.look((5 + i, 5), (0, 0), 9)
    assert world.look((1_005, 5), (1_004, 5), 11) < 3 * TICK_S, "what came lately was there"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=80))
def test_it_never_says_that_something_has_arrived_which_has_not(steps: list[tuple[int, int, int, bool]]) -> None:
    """Against a model in which each record's time is known: `steps` are how many come and are read, and committed."""
    arrivals, ends, read = Arrivals(), [0, 0], [0, 0]
    came: list[list[float]] = [[], []]
    committed, log_end, lacks = [0, 0], 0, None
    for i, (first, second, reads, commits) in enumerate(steps):
        now_s = NOW + i * TICK_S
        for partition, number in enumerate((first, second)):
            came[partition] += [now_s - 1] * number
            ends[partition] += number
        before = [*read]
        read = [min(end, at + reads) for end, at in zip(ends, read, strict=True)]
        if read != before:
            lacks = log_end if lacks is None else lacks
            log_end += 1
        if commits:
            committed, lacks = [*read], None
        arrivals.look(
            now_s, {FIRST: ends[0], SECOND: ends[1]}, {FIRST: read[0], SECOND: read[1]}, log_end, {"db.t": Lacks(lacks)}
        )
        missing = [at_s for times, at in zip(came, committed, strict=True) for at_s in times[at:]]
        assert arrivals.through_s.get("db.t", 0.0) <= min(missing, default=now_s)


def test_a_topic_that_is_not_read_is_missing_from_the_tables_that_it_feeds_alone() -> None:
    arrivals, held = Arrivals(), TopicPartition("held", 0)
    feeds = {"db.good": frozenset({"t"}), "db.bad": frozenset({"held"}), "db.both": None, "db.behind": frozenset({"t"})}
    for i in range(10):
        lacking = {name: Lacks(5 if name == "db.behind" else None, topics) for name, topics in feeds.items()}
        arrivals.look(NOW + i * TICK_S, {FIRST: i, held: i}, {FIRST: i, held: 0}, 2 * i, lacking)
    ages = {name: NOW + 9 * TICK_S - through_s for name, through_s in arrivals.through_s.items()}
    assert ages == {"db.good": 0.0, "db.bad": 9 * TICK_S, "db.both": 9 * TICK_S, "db.behind": 7 * TICK_S}


def test_a_clock_that_was_ahead_for_a_while_silences_nobody() -> None:
    world = World(now_s=NOW + 86_400)
    world.look((5, 5), (5, 5), 9)
    memory = Memory().after(seen(0), world.arrivals.through_s, world.now_s)
    world.now_s = NOW
    world.look((6, 5), (5, 5), 9)
    memory = memory.after(seen(1), world.arrivals.through_s, world.now_s)
    assert verdicts(memory, seen(1), world.now_s + 90)[FRESHNESS] is False


def verdicts(
    memory: Memory, sight: Sight | None, now_s: float, *, why: str = "", subject: str = "db.t"
) -> dict[str, bool]:
    return {v.check: v.passed for v in memory.judged(OBJECTIVES, sight, why, [subject], now_s)}


def after(through_s: Mapping[str, float], sight: Sight | None = None, now_s: float = NOW) -> Memory:
    return Memory().after(sight or seen(0), through_s, now_s)


@pytest.mark.parametrize(("lag", "age_s", "red"), [(0, 0, []), (10, 60, []), (11, 60, [LAG]), (1, 61, [FRESHNESS])])
def test_an_objective_that_is_missed_is_red(lag: int, age_s: float, red: list[str]) -> None:
    judged = verdicts(after({"db.t": NOW - age_s}), seen(lag), NOW)
    assert [check for check, passed in judged.items() if not passed] == red


def test_what_nobody_can_see_is_red_for_freshness_in_its_own_time_and_for_lag_in_a_minute() -> None:
    memory = after({"db.t": NOW})
    for later, red in ((30, []), (BLIND_S, [LAG]), (61, [LAG, FRESHNESS])):
        memory = memory.after(None, {}, NOW + later)
        judged = verdicts(memory, None, NOW + later, why="no answer")
        assert [check for check, passed in judged.items() if not passed] == red
    [lag, fresh] = memory.judged(OBJECTIVES, None, "no answer from b:9092", ["db.t"], NOW + 61)
    for verdict in (lag, fresh):
        names(verdict.text, "no answer from b:9092", "2027-01-15 08:00:00 UTC")
    assert (lag.subject, fresh.subject) == (None, "db.t")
    assert all(verdicts(memory.after(seen(0), {"db.t": NOW + 65}, NOW + 65), seen(0), NOW + 65).values())


def test_one_whose_first_run_never_starts_is_red_once_records_have_waited_and_not_for_a_lag_that_nobody_knows() -> None:
    nothing, some = Sight(lag=0, end=0, bootstrapped=False), Sight(lag=99, end=99, bootstrapped=False)
    memory = Memory()
    for now_s, sight, passed in ((NOW, nothing, True), (NOW + 60, some, True), (NOW + 90, some, False)):
        memory = memory.after(sight, {}, now_s)
        assert verdicts(memory, sight, now_s) == {FRESHNESS: passed}


def test_what_does_not_fit_together_is_no_lag_and_does_not_stay_green() -> None:
    sight = Sight(lag=0, end=5, bootstrapped=True, contradiction="made anew")
    memory = after({"db.t": NOW}).after(sight, {"db.t": NOW}, NOW + 61)
    assert verdicts(memory, sight, NOW + 61) == {FRESHNESS: False}


def test_the_next_code_server_knows_up_to_when_all_had_arrived() -> None:
    memory = after({ALL: NOW}).after(seen(5), {}, NOW + 61)
    assert verdicts(memory, seen(5), NOW + 61, subject=ALL) == {LAG: True, FRESHNESS: False}


def test_what_no_file_asks_for_nobody_judges() -> None:
    assert [*after({}).judged(Objectives(), seen(10**9), "", ["db.t"], NOW + 10**6)] == []

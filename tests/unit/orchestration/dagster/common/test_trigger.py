"""The sensor's decisions as a state machine: every way to start a run, every way not to, and the times in between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.orchestration.dagster.common import trigger
from calve.orchestration.dagster.common.trigger import Decision, LastRuns, Memory, Sight, Unreached
from calve.sink_core.config.common import Trigger
from tests.codes import names

NOW = 1_800_000_000.0
NOW_TEXT = "2027-01-15 08:00:00 UTC"
TICK_S = 5.0
TRIGGER = Trigger.model_validate({"every": "60s", "or_records": 1_000})
FILE, CONFIG = "p.yaml", "c0ffee"
BACK_OFFS = [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
CAUGHT_UP = Sight(lag=0, end=500, bootstrapped=True)
WAITING = Sight(lag=7, end=507, bootstrapped=True)


def want(sight: Sight, waited_s: float = 0.0) -> Decision:
    """The decision `waited_s` after the last publish."""
    return trigger.wanted(TRIGGER, sight, Memory(published_s=NOW - waited_s, seen_s=NOW - waited_s), NOW)


def allow(
    runs: LastRuns, sight: Sight = WAITING, now_s: float = NOW, config: str = CONFIG, seen_s: float | None = None
) -> Decision:
    """The decision, of a failure that a tick has seen at `seen_s`, by default when the run ended."""
    memory = Memory().failed(runs, runs.failed_s if seen_s is None else seen_s)
    return trigger.allowed(runs, sight, memory, file=FILE, config=config, now_s=now_s)


def assert_tells(decision: Decision, *, start: bool, named: tuple[object, ...]) -> None:
    """What is decided, and that the reason names these."""
    assert decision.start is start
    assert decision.reason
    names(decision.reason, *named)


def test_a_caught_up_pipeline_asks_for_nothing() -> None:
    assert_tells(want(CAUGHT_UP, waited_s=9_999), start=False, named=())


def test_few_young_records_wait_and_the_reason_has_all_numbers() -> None:
    few = replace(WAITING, lag=999)
    numbers = 999, "trigger.or_records", "1,000", "59 s", "trigger.every", "60 s"
    assert_tells(want(few, waited_s=59), start=False, named=numbers)


def test_few_old_records_start_a_run() -> None:
    assert_tells(want(WAITING, waited_s=61), start=True, named=(7, "61 s", "trigger.every", "60 s"))
    assert want(WAITING, waited_s=60).start


@pytest.mark.parametrize("lag", [1_000, 12_345])
def test_many_records_start_a_run_at_any_age(lag: int) -> None:
    assert_tells(want(replace(WAITING, lag=lag)), start=True, named=(f"{lag:,}", "trigger.or_records", "1,000"))


@pytest.mark.parametrize("lag", [0, 1, 5_000])
def test_a_pipeline_that_never_ran_is_started_even_without_records(lag: int) -> None:
    assert_tells(want(Sight(lag=lag, end=lag, bootstrapped=False)), start=True, named=())


def test_a_contradiction_starts_a_run_that_will_name_it() -> None:
    assert want(replace(CAUGHT_UP, contradiction="end 3 below position 9")) == Decision(True, "end 3 below position 9")


@pytest.mark.parametrize(
    "sight",
    [
        CAUGHT_UP,
        WAITING,
        replace(WAITING, lag=9_999),
        replace(WAITING, bootstrapped=False),
        replace(WAITING, contradiction="end 3 below position 9"),
    ],
)
def test_a_pause_outweighs_everything(sight: Sight) -> None:
    assert want(replace(sight, paused="paused by ann: upgrade"), waited_s=9_999) == Decision(
        False, "paused by ann: upgrade"
    )


def due_at(published_s: float, *, ahead_s: float = 0.0, until_s: int = 300) -> list[float]:
    """In which seconds after the first look at a topic that never stops a run is wanted, each run publishing at once.

    The last publish before it was at `published_s`; the clock of whoever publishes is `ahead_s` ahead.
    """
    memory, due = Memory(), list[float]()
    for second in range(0, until_s, 5):
        now_s = NOW + second
        memory = memory.reached(replace(WAITING, published_s=published_s + ahead_s), now_s)
        if trigger.wanted(TRIGGER, WAITING, memory, now_s).start:
            due.append(second)
            published_s = now_s
    return due


def test_a_topic_that_never_stops_gets_a_run_each_time_that_every_has_passed() -> None:
    assert due_at(NOW - 20) == [40, 100, 160, 220, 280]
    assert due_at(NOW - 9_999) == [0, 60, 120, 180, 240]


def test_a_clock_that_is_ahead_puts_off_no_run() -> None:
    assert due_at(NOW, ahead_s=86_400) == [60, 125, 190, 255], "a tick late: that is when the publish is seen"
    assert due_at(NOW - 20, ahead_s=-10) == [30, 80, 130, 180, 230, 280]


def test_records_start_a_run_at_once_if_the_last_publish_is_no_longer_known() -> None:
    memory = Memory().reached(WAITING, NOW)
    wanted = trigger.wanted(TRIGGER, WAITING, memory, NOW)
    assert_tells(wanted, start=True, named=(7, "trigger.every", "60 s"))


def test_a_run_in_flight_holds_others_back_and_its_age_is_told() -> None:
    runs = LastRuns(in_flight="0123456789abcdef", in_flight_s=NOW - 17.4)
    assert_tells(allow(runs), start=False, named=("01234567", "17 s"))
    by_another_clock = allow(replace(runs, in_flight_s=NOW + 2))
    assert_tells(by_another_clock, start=False, named=("01234567", "0 s"))


def test_without_a_failure_nothing_holds_a_run_back() -> None:
    assert allow(LastRuns()) == Decision(True, "")


@pytest.mark.parametrize(("failures", "wait_s"), list(enumerate(BACK_OFFS, start=1)))
def test_the_wait_doubles_with_each_failure_up_to_half_an_hour(failures: int, wait_s: int) -> None:
    runs = LastRuns(failures=failures, failed_s=NOW, why="no answer")
    assert not allow(runs, now_s=NOW + wait_s - 0.001).start
    assert allow(runs, now_s=NOW + wait_s).start


def test_a_failed_run_is_told_with_its_error_remedy_and_next_try() -> None:
    once = LastRuns(failures=1, failed_s=NOW, why="Unreachable: no answer", remedy="start the broker")
    told = NOW_TEXT, "Unreachable: no answer → start the broker", "20 s"
    assert_tells(allow(once, now_s=NOW + 10), start=False, named=told)
    thrice = allow(replace(once, failures=3, remedy=""), now_s=NOW + 20)
    assert_tells(thrice, start=False, named=(3, NOW_TEXT, "Unreachable: no answer", "100 s"))
    assert "→" not in thrice.reason


def test_an_answer_ends_a_back_off_early() -> None:
    runs = LastRuns(failures=7, failed_s=NOW, answer="a1")
    assert not allow(runs, replace(WAITING, answer="a1"), now_s=NOW + 5).start
    assert allow(runs, replace(WAITING, answer="a2"), now_s=NOW + 5).start


@pytest.mark.parametrize("ahead_s", [-86_400, 86_400])
def test_a_back_off_is_counted_by_the_sensor_s_clock_from_when_it_saw_the_failure(ahead_s: int) -> None:
    runs = LastRuns(failures=2, failed_s=NOW + ahead_s)
    assert not allow(runs, now_s=NOW + 59, seen_s=NOW).start
    assert allow(runs, now_s=NOW + 60, seen_s=NOW).start


STOPPED = LastRuns(
    failures=1,
    failed_s=NOW,
    terminal=True,
    why="topic-recreated: t: stored 1, found 2",
    remedy="calve resolve p.yaml topic-recreated --subject t --choose restart",
    config=CONFIG,
)


def test_a_stop_lasts_and_names_error_remedy_and_command() -> None:
    for later_s in (0, 60, 1_800, 10_000_000):
        told = NOW_TEXT, STOPPED.why, STOPPED.remedy, f"calve resume {FILE}"
        assert_tells(allow(STOPPED, now_s=NOW + later_s), start=False, named=told)
    assert_tells(allow(replace(STOPPED, remedy="")), start=False, named=(STOPPED.why, f"calve resume {FILE}"))


ONE_BEHIND = Sight(lag=0, end=500, bootstrapped=True, behind=1)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_table_that_failed_alone_holds_up_no_record_of_the_others(terminal: bool) -> None:
    alone = LastRuns(failures=3, failed_s=NOW, terminal=terminal, config=CONFIG, alone=True)
    assert allow(alone).start
    # A run for it alone waits, or for an answer.
    assert want(ONE_BEHIND).start
    assert not allow(alone, ONE_BEHIND).start
    assert allow(alone, ONE_BEHIND, now_s=NOW + 200).start is not terminal


def test_records_that_are_held_back_start_no_run_but_to_try_again() -> None:
    held = LastRuns(failures=2, failed_s=NOW, config=CONFIG, alone=True, held=frozenset({"bad"}))
    only = Sight(lag=5_000, end=6_000, bootstrapped=True, by_topic={"bad": 5_000}).beside(held.held)
    assert want(only).start
    assert not allow(held, only).start
    assert allow(held, only, now_s=NOW + 60).start
    # Those of others are waited for as if there were no more.
    few = Sight(lag=5_007, end=6_000, bootstrapped=True, by_topic={"bad": 5_000, "good": 7}).beside(held.held)
    assert_tells(want(few, waited_s=59), start=False, named=(7,))
    assert want(few, waited_s=60).start
    assert allow(held, few).start
    assert WAITING.beside(held.held) == WAITING


def test_a_table_behind_whose_last_run_ended_well_needs_no_run() -> None:
    assert not allow(LastRuns(), ONE_BEHIND).start


@pytest.mark.parametrize(
    ("known", "answer", "start"),
    [("", "", False), ("", "a1", True), ("a1", "a1", False), ("a1", "a2", True), ("a1", None, False)],
)
def test_only_an_answer_that_the_failed_run_did_not_have_ends_a_stop(
    known: str, answer: str | None, start: bool
) -> None:
    """No clock is asked; of a log that can't be read nothing is known."""
    assert allow(replace(STOPPED, answer=known), replace(WAITING, answer=answer), now_s=NOW + 9).start is start


def test_another_configuration_ends_a_stop() -> None:
    assert allow(STOPPED, config="decade").start


def test_a_stop_that_follows_an_answer_is_a_new_stop() -> None:
    answered = replace(WAITING, answer="a1")
    assert not allow(replace(STOPPED, failures=2, failed_s=NOW + 2, answer="a1"), answered, now_s=NOW + 9).start


@dataclass
class Simulation:
    """Ticks every 5 s, as Dagster makes them, of a pipeline whose records always wait. `starts` are in seconds."""

    memory: Memory = field(default_factory=Memory)
    runs: LastRuns = field(default_factory=LastRuns)
    answer: str = ""
    known: str = ""
    starts: list[float] = field(default_factory=list[float])

    def tick(self, now_s: float) -> bool:
        sight = Sight(lag=5_000, end=5_000, bootstrapped=True, answer=self.answer)
        self.memory = self.memory.reached(sight, now_s).failed(self.runs, now_s)
        want = trigger.wanted(TRIGGER, sight, self.memory, now_s)
        may = trigger.allowed(self.runs, sight, self.memory, file=FILE, config=CONFIG, now_s=now_s)
        start = want.start and may.start
        if start:
            self.starts.append(now_s - NOW)
            self.known = self.answer
        return start

    def fail(self, now_s: float, *, terminal: bool = False) -> None:
        self.runs = LastRuns(
            failures=self.runs.failures + 1, failed_s=now_s, terminal=terminal, config=CONFIG, answer=self.known
        )


def test_a_run_that_always_fails_at_once_is_made_five_times_in_ten_minutes() -> None:
    simulation = Simulation()
    for at in range(0, 6_000, int(TICK_S)):
        if simulation.tick(NOW + at):
            simulation.fail(NOW + at)
    # Each failure is seen by the tick after it.
    assert simulation.starts == [0, 35, 100, 225, 470, 955, 1_920, 3_725, 5_530]
    assert len([at for at in simulation.starts if at < 600]) == 5


Outcome = st.sampled_from(["good", "bad", "terminal"])
Runs = st.lists(st.tuples(st.integers(0, 40), Outcome), min_size=1, max_size=30)
TICKS = 1_500


@settings(max_examples=60)
@given(Runs, st.sets(st.integers(0, TICKS), max_size=5))
def test_never_two_runs_at_once_and_never_one_before_its_time(plan: list[tuple[int, str]], answers: set[int]) -> None:
    """`plan`: for each run, how many ticks it takes and how it ends; `answers`: the ticks at which somebody resumes."""
    simulation, coming = Simulation(), iter(plan)
    under_way: tuple[int, str] | None = None
    for number in range(TICKS):
        now_s = NOW + number * TICK_S
        if number in answers:
            simulation.answer = f"a{number}"
        if under_way and number >= under_way[0]:
            if under_way[1] == "good":
                simulation.runs = LastRuns()
            else:
                simulation.fail(now_s, terminal=under_way[1] == "terminal")
            under_way = None
        before = simulation.runs
        if not simulation.tick(now_s):
            continue
        assert under_way is None, "two runs at once"
        answered = simulation.answer != before.answer
        if before.failures and not answered:
            assert not before.terminal
            assert now_s - before.failed_s >= BACK_OFFS[min(before.failures, len(BACK_OFFS)) - 1]
        lasts, ends = next(coming, (10_000, "good"))
        under_way = (number + 1 + lasts, ends)
        simulation.runs = replace(simulation.runs, in_flight="run", in_flight_s=now_s)


@given(st.integers(1, 40), st.floats(1, 1e10), st.floats(-1e4, 1e10), st.booleans())
def test_while_a_run_is_in_flight_none_is_allowed(failures: int, begun_s: float, now_s: float, terminal: bool) -> None:
    runs = LastRuns(in_flight="run", in_flight_s=begun_s, failures=failures, terminal=terminal)
    assert not allow(runs, replace(WAITING, answer="a1"), now_s=now_s, config="other").start


def test_a_broker_out_of_reach_is_asked_after_5_10_20_40_and_then_60_seconds() -> None:
    memory, now_s, waits = Memory(), NOW, list[float]()
    for _ in range(7):
        memory = memory.not_reached("no answer", now_s)
        assert memory.unreachable is not None
        waits.append(memory.unreachable.next_s - now_s)
        now_s = memory.unreachable.next_s
    assert waits == [5, 10, 20, 40, 60, 60, 60]
    assert memory.unreachable is not None
    assert memory.unreachable.since_s == NOW


def test_until_then_it_is_not_asked_and_the_reason_says_since_when_and_why() -> None:
    memory = Memory().not_reached("no answer → start it", NOW)
    waiting = trigger.unreached(memory, NOW + 1)
    assert waiting is not None
    assert_tells(waiting, start=False, named=(NOW_TEXT, "no answer → start it", "4 s"))
    assert trigger.unreached(memory, NOW + 5) is None


def test_an_answer_of_the_broker_resets_the_wait() -> None:
    memory = Memory()
    for second in range(5):
        memory = memory.not_reached("no answer", NOW + second)
    memory = memory.reached(WAITING, NOW + 100)
    assert memory.unreachable is None
    assert trigger.unreached(memory, NOW + 100) is None
    memory = memory.not_reached("no answer", NOW + 200)
    assert memory.unreachable == Unreached(NOW + 200, 1, NOW + 205, "no answer")


def test_a_broker_that_is_gone_for_days_is_still_asked_each_minute() -> None:
    gone = Memory(unreachable=Unreached(since_s=NOW, times=5_000, next_s=NOW, why="no answer"))
    after = gone.not_reached("no answer", NOW).unreachable
    assert after == Unreached(since_s=NOW, times=5_001, next_s=NOW + 60, why="no answer")
    assert not allow(LastRuns(failures=5_000, failed_s=NOW), now_s=NOW + 1_799).start


def test_what_is_remembered_outlives_an_outage() -> None:
    memory = Memory().reached(CAUGHT_UP, NOW).observed(CAUGHT_UP, NOW)
    after = memory.not_reached("no answer", NOW + 5)
    assert replace(after, unreachable=None) == memory


def observed_at(sights: list[Sight], every_s: float = TICK_S) -> list[float]:
    """When these sights, one a tick, are observed; in seconds since the first."""
    memory, seconds = Memory(), list[float]()
    for number, sight in enumerate(sights):
        now_s = NOW + number * every_s
        if trigger.worth_observing(memory, sight, now_s):
            memory = memory.observed(sight, now_s)
            seconds.append(now_s - NOW)
    return seconds


def test_a_topic_at_rest_is_observed_once() -> None:
    assert observed_at([CAUGHT_UP] * 100) == [0]
    assert observed_at([WAITING] * 100) == [0]


def test_a_busy_topic_is_observed_each_minute() -> None:
    busy = [Sight(lag=7, end=number, bootstrapped=True) for number in range(40)]
    assert observed_at(busy) == [0, 60, 120, 180]


def test_lag_that_comes_or_goes_is_observed_at_once() -> None:
    assert observed_at([CAUGHT_UP, WAITING, replace(WAITING, end=600), CAUGHT_UP, CAUGHT_UP]) == [0, 5, 15]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60))
def test_observations_are_of_changes_and_a_minute_apart_unless_lag_comes_or_goes(seen: list[tuple[int, int]]) -> None:
    sights = [Sight(lag=lag, end=end, bootstrapped=True) for lag, end in seen]
    at = [int(second // TICK_S) for second in observed_at(sights)]
    assert at[:1] == ([0] if sights else [])
    for earlier, later in pairwise(at):
        before, after = sights[earlier], sights[later]
        assert before != after
        assert (later - earlier) * TICK_S >= 60 or (before.lag == 0) != (after.lag == 0)

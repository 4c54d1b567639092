"""When the sensor starts a run. Pure: what was seen, what is remembered and the clock in, a decision out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from calve.sink_core.config.common import Trigger

BACK_OFF_S = 30.0
BACK_OFF_MOST_S = 1800.0
"""After n failed runs in a row the next waits 30 s doubled n - 1 times: five runs in the first ten minutes."""

LOOK_AGAIN_S = 5.0
LOOK_AGAIN_MOST_S = 60.0
"""A broker that doesn't answer is asked again after 5 s, 10 s, … 60 s: asking takes seconds that other sensors wait."""

OBSERVE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Sight:
    """The source and the control log at one moment, by this host's clock.

    `lag` are offsets not yet published, `end` the sum of all end offsets. `answer` is the id of the last RESUMED or
    RESOLVED, empty without one, None where the log can't be read. `published_s` is the time of the last publish by the
    clock of whoever made it, 0 if unknown. `contradiction` is what doesn't fit together, which a run will name
    properly. `behind` counts the tables that lack what is published, where runs commit. `by_topic` has the lag of each
    topic that has one.
    """

    lag: int
    end: int
    bootstrapped: bool
    paused: str | None = None
    answer: str | None = ""
    published_s: float = 0.0
    contradiction: str | None = None
    behind: int = 0
    by_topic: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def only_behind(self) -> bool:
        """Whether there is nothing to read, and something to commit."""
        return self.bootstrapped and not self.lag and not self.contradiction and self.behind > 0

    def beside(self, held: Collection[str]) -> Sight:
        """Without the records of topics that are held back: if there are any, a table lacks them."""
        waiting = sum(lag for topic, lag in self.by_topic.items() if topic in held)
        if not waiting or not self.bootstrapped or self.contradiction:
            return self
        return replace(self, lag=max(0, self.lag - waiting), behind=self.behind + 1)


@dataclass(frozen=True, slots=True)
class Unreached:
    """A broker that has not answered `times` times since; it is asked again from `next_s` on."""

    since_s: float
    times: int
    next_s: float
    why: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What a tick leaves for the next. `published_s` is the last publish by its writer's clock, `seen_s` when a tick
    saw it first, by this host's: a writer whose clock is ahead must not put off the next run. The same are `failed_s`
    and `failure_seen_s` of the last failed run.
    """

    published_s: float = 0.0
    seen_s: float = 0.0
    failed_s: float = 0.0
    failure_seen_s: float = 0.0
    observed_end: int = -1
    observed_lag: int = -1
    observed_s: float = 0.0
    unreachable: Unreached | None = None

    def not_reached(self, why: str, now_s: float) -> Memory:
        before = self.unreachable
        times = before.times + 1 if before else 1
        wait_s = doubled(LOOK_AGAIN_S, times, LOOK_AGAIN_MOST_S)
        since_s = before.since_s if before else now_s
        return replace(self, unreachable=Unreached(since_s, times, now_s + wait_s, why))

    def reached(self, sight: Sight, now_s: float) -> Memory:
        seen_s = self.seen_s if sight.published_s == self.published_s else now_s
        return replace(self, published_s=sight.published_s, seen_s=seen_s, unreachable=None)

    def failed(self, runs: LastRuns, now_s: float) -> Memory:
        seen_s = self.failure_seen_s if runs.failed_s == self.failed_s else now_s
        return replace(self, failed_s=runs.failed_s, failure_seen_s=seen_s)

    def observed(self, sight: Sight, now_s: float) -> Memory:
        return replace(self, observed_end=sight.end, observed_lag=sight.lag, observed_s=now_s)


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The pipeline's ingest runs. `failures` came one after the other with no success since; the rest is of the last.

    `config` is the fingerprint of the pipeline file it ran with, `remedy` the command or setting that its error named.
    `alone`: single tables failed, while all else was done; `held` are topics that were not read for that. `answer` is
    the last that there was when it was asked for.
    """

    in_flight: str | None = None
    in_flight_s: float = 0.0
    failures: int = 0
    failed_s: float = 0.0
    terminal: bool = False
    why: str = ""
    remedy: str = ""
    config: str = ""
    alone: bool = False
    answer: str = ""
    held: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Decision:
    """`start` a run or not; `reason` says why in numbers, for the run's tag or the tick's skip reason."""

    start: bool
    reason: str


def worth_observing(memory: Memory, sight: Sight, now_s: float) -> bool:
    """On change only, and each minute at most unless the lag comes or goes."""
    if (sight.end, sight.lag) == (memory.observed_end, memory.observed_lag):
        return False
    return now_s - memory.observed_s >= OBSERVE_EVERY_S or (sight.lag == 0) != (memory.observed_lag == 0)


def wanted(trigger: Trigger, sight: Sight, memory: Memory, now_s: float) -> Decision:
    """Whether the source asks for a run; what is in flight and what failed is not looked at."""
    if sight.paused:
        return Decision(False, sight.paused)
    if sight.contradiction:
        return Decision(True, sight.contradiction)
    if not sight.bootstrapped:
        return Decision(True, "first run: the start positions are not in place yet")
    if sight.only_behind:
        return Decision(True, f"caught up: nothing else waits, and {sight.behind} table(s) are behind")
    if not sight.lag:
        return Decision(False, "caught up: no record waits")
    waits = f"{sight.lag:,} records wait"
    if sight.lag >= trigger.or_records:
        return Decision(True, f"{waits}, trigger.or_records is {trigger.or_records:,}")
    every = f"trigger.every is {trigger.every:g} s"
    if not memory.published_s:
        return Decision(True, f"{waits}, nothing was published for long, {every}")
    age_s = now_s - min(memory.published_s, memory.seen_s)
    seconds = f"the last publish was {age_s:.0f} s ago, {every}"
    if age_s >= trigger.every:
        return Decision(True, f"{waits}, {seconds}")
    return Decision(False, f"{waits} (trigger.or_records is {trigger.or_records:,}), {seconds}")


def allowed(runs: LastRuns, sight: Sight, memory: Memory, *, file: str, config: str, now_s: float) -> Decision:
    """Whether a run that is wanted may start now. `config` is the fingerprint of the pipeline file as it is now;
    `memory` has seen the last failure.

    A failed run is answered by a RESUMED or RESOLVED that there was not yet when it was asked for, whatever any clock
    says: each answer starts one run, which has to wait again if it fails.

    A table that failed `alone` holds up no record of the others: its failure stops and delays only runs that would do
    nothing but try it again. Such a run there is after a failure only: after one that ended well it would find nothing.
    """
    if runs.in_flight:
        return Decision(
            False, f"run {runs.in_flight[:8]} is in progress for {max(0.0, now_s - runs.in_flight_s):.0f} s"
        )
    if not runs.failures:
        return Decision(False, "the last run ended well") if sight.only_behind else Decision(True, "")
    if runs.alone and not sight.only_behind:
        return Decision(True, "")
    answered = sight.answer is not None and sight.answer != runs.answer
    since = f"since {clock(runs.failed_s)}"
    remedy = f" → {runs.remedy}" if runs.remedy else ""
    if runs.terminal:
        if answered or runs.config != config:
            return Decision(True, "")
        return Decision(False, f"stopped {since}: {runs.why}{remedy} → then calve resume {file}")
    next_s = memory.failure_seen_s + doubled(BACK_OFF_S, runs.failures, BACK_OFF_MOST_S)
    if now_s >= next_s or answered:
        return Decision(True, "")
    times = f"{runs.failures} failed runs in a row" if runs.failures > 1 else "the last run failed"
    return Decision(False, f"{times} ({since}): {runs.why}{remedy}; next try in {next_s - now_s:.0f} s")


def unreached(memory: Memory, now_s: float) -> Decision | None:
    """Why the source isn't even looked at now; None if it is to be."""
    gone = memory.unreachable
    if gone is None or now_s >= gone.next_s:
        return None
    return Decision(
        False, f"nothing to go by since {clock(gone.since_s)}: {gone.why}; next try in {gone.next_s - now_s:.0f} s"
    )


def doubled(first_s: float, times: int, most_s: float) -> float:
    """How long to wait after the n-th time in a row. A broker that is gone for a day has not answered 1,400 times."""
    return min(most_s, first_s * 2 ** min(times - 1, 30))


def clock(at_s: float) -> str:
    """A time as skip reasons show it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""Up to when all that had come has arrived, by what looks at a source saw; and what the objectives are by that.

A look sees the ends of the source's partitions. Once the positions cover those of the topics that feed a table, all
that had come for it until that look is published; once it lacks nothing that was published by then, it is in the table.
Ages are counted by the clock of whoever looks. No timestamp of a record is asked: under CreateTime it says nothing of
when the record came, and the valid-through time of a table that gets no records stays where it is. At a look with
nothing pending all has arrived.

The marks are in the code server's memory: the next one knows by the sensor's cursor up to when all had arrived, and
looks on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from calve.orchestration.dagster.common.trigger import Sight, clock
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG, Verdict, lag
from calve.sink_core.config.common import Objectives
from calve.sink_core.offsets import Offsets

ALL = ""
"""The subject of a kind that has one for all that is moved; None where subjects may be that."""

BLIND_S = 60.0
"""After so long without an answer nobody knows how many records wait."""

_MARK_EVERY_S = 4.0
"""Between marks that stay; the last look always is one."""

_MOST = 64
"""Marks that are kept; of more, every other one goes."""


class Lacks(NamedTuple):
    """The first control offset of something published that a subject does not have, None if it has all; and the topics
    that feed it, None for all.
    """

    first: int | None
    topics: frozenset[str] | None = None


@dataclass(slots=True)
class _Mark:
    """What was there at a look. `published` has by topic a control offset below which all of it is published; `pending`
    are the topics of which some is not.
    """

    seen_s: float
    ends: Offsets
    pending: set[str]
    published: dict[str, int] = field(default_factory=dict[str, int])

    def look(self, ends: Offsets, positions: Offsets, log_end: int) -> None:
        """Of partitions that are not read any more nothing is missing."""
        if self.pending:
            left = {at.topic for at, end in self.ends.items() if at in ends and positions.get(at, 0) < end}
            self.published.update(dict.fromkeys(self.pending - left, log_end))
            self.pending &= left

    def arrived(self, at: Lacks) -> bool:
        """Whether all that was there for a subject then is there now."""
        if self.pending if at.topics is None else self.pending & at.topics:
            return False
        offsets = (offset for topic, offset in self.published.items() if at.topics is None or topic in at.topics)
        return at.first is None or all(at.first >= offset for offset in offsets)


class Arrivals:
    """By subject of the check `freshness`, up to when all has arrived."""

    def __init__(self) -> None:
        self._marks: list[_Mark] = []
        self._through_s: dict[str, float] = {}

    @property
    def through_s(self) -> Mapping[str, float]:
        """Without a subject for which no look knows."""
        return dict(self._through_s)

    def look(self, now_s: float, ends: Offsets, positions: Offsets, log_end: int, lacking: Mapping[str, Lacks]) -> None:
        """Below `log_end` of the control log stands what the positions come from. `lacking` are the subjects."""
        if self._marks and now_s < self._marks[-1].seen_s:
            # The clock was set back: what was seen by the other one is compared with nothing.
            self._marks, self._through_s = [], {}
        if len(self._marks) > 1 and self._marks[-1].seen_s - self._marks[-2].seen_s < _MARK_EVERY_S:
            self._marks.pop()
        self._marks.append(_Mark(now_s, dict(ends), {at.topic for at in ends}))
        for mark in self._marks:
            mark.look(ends, positions, log_end)
        for subject, lacks in lacking.items():
            has = next((mark.seen_s for mark in reversed(self._marks) if mark.arrived(lacks)), None)
            if has is not None:
                self._through_s[subject] = has
        oldest_s = min((self._through_s.get(subject, 0.0) for subject in lacking), default=0.0)
        self._marks = [mark for mark in self._marks if mark.seen_s >= oldest_s]
        if len(self._marks) > _MOST:
            del self._marks[1:-1:2]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a tick leaves for the next: by this host's clock when it looked first and when it saw something last, and by
    subject up to when all had arrived.
    """

    first_s: float = 0.0
    seen_s: float = 0.0
    through_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def after(self, sight: Sight | None, through_s: Mapping[str, float], now_s: float) -> Memory:
        """With what a look saw; None if it saw nothing."""
        first_s = min(self.first_s or now_s, now_s)
        if sight is None:
            return Memory(first_s, min(self.seen_s or first_s, now_s), _until(self.through_s, now_s))
        return Memory(first_s, now_s, _until({**self.through_s, **through_s}, now_s))

    def judged(
        self, objectives: Objectives, sight: Sight | None, why: str, subjects: Iterable[str], now_s: float
    ) -> Iterator[Verdict]:
        """The verdicts on the objectives that the file sets, as far as something is known. `why` says why there is no
        sight; `subjects` are those of `freshness`.
        """
        blind = "" if sight else f"nobody knows what is pending since {clock(self.seen_s)}: {why}"
        if objectives.lag is not None:
            if sight is not None and sight.bootstrapped and not sight.contradiction:
                yield replace(lag(sight.lag, objectives.lag), check=LAG)
            elif sight is None and now_s - self.seen_s >= BLIND_S:
                yield Verdict(False, f"{blind}; objectives.lag is {objectives.lag:,}", {}, check=LAG)
        if objectives.freshness is not None:
            for subject in subjects:
                fresh = self._fresh(subject, objectives.freshness, sight, blind, now_s)
                # What nobody sees turns red in time, and nothing turns green by it.
                if sight is not None or not fresh.passed:
                    yield replace(fresh, check=FRESHNESS, subject=subject or None)

    def _fresh(self, subject: str, most_s: float, sight: Sight | None, blind: str, now_s: float) -> Verdict:
        nothing_yet = sight is not None and not sight.bootstrapped and not sight.lag
        known_s = now_s if nothing_yet else self.through_s.get(subject)
        through_s = self.first_s if known_s is None else known_s
        if known_s is not None:
            known = f"all that had come until {clock(known_s)} has arrived"
        else:
            known = "" if blind else f"records wait since {clock(through_s)} or longer"
        text = "; ".join([*filter(None, (blind, known)), f"objectives.freshness is {most_s:g} s"])
        age_s = now_s - through_s
        return Verdict(age_s <= most_s, text, {"age_s": round(age_s, 3)})


def _until(through_s: Mapping[str, float], now_s: float) -> dict[str, float]:
    """A clock that was ahead for a while must not silence anybody until then."""
    return {subject: min(at_s, now_s) for subject, at_s in through_s.items()}

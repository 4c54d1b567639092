"""What a proof says: violations, what could not be checked, and what was counted. Values, all JSON-able."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError
from calve.sink_core.finding import NOTHING, PROVEN, VIOLATED, NotChecked
from calve.sink_core.report import BAD, WARNING, Line, verdict_line
from calve.sink_core.timing import Deadline

SHOWN_PER_KIND = 20
"""Violations of one kind about one subject that are spelled out; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that contradicts "every source offset was accounted for once".

    `subject` is a table, a partition (`flights[3]`) or the control topic, `ranges` are source offsets in the form
    `flights[3] [100, 240)`, `batches` the batches concerned as far as they are known.
    """

    kind: str
    subject: str
    message: str
    ranges: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The result. `proven` means that nothing that was checked is violated; `not_checked` bounds that claim. `ran`:
    something was published; else there is nothing to prove.

    `facts` counts what was looked at, `uncommitted` the batches per table that are published and not yet committed,
    `left_out` the violations per kind that are not spelled out. `since`: only batches planned then or later.
    """

    pipeline: str
    deep: bool
    violations: tuple[Violation, ...]
    not_checked: tuple[NotChecked, ...]
    facts: Mapping[str, int]
    uncommitted: Mapping[str, int]
    left_out: Mapping[str, int]
    since: str | None = None
    ran: bool = True

    @property
    def verdict(self) -> str:
        if self.violations:
            return VIOLATED
        return PROVEN if self.ran else NOTHING

    @property
    def proven(self) -> bool:
        return self.verdict == PROVEN

    def to_json(self) -> dict[str, Any]:
        return {"proven": self.proven, "verdict": self.verdict, **asdict(self)}

    def lines(self) -> Iterator[Line]:
        for violation in self.violations:
            yield Line(f"{violation.kind}: {violation.subject}: {violation.message}", BAD)
            yield from (Line(f"    {place}") for place in violation.ranges)
            if violation.batches:
                yield Line(f"    batches: {', '.join(violation.batches)}")
        yield from (Line(f"{kind}: {number:,} more not shown") for kind, number in self.left_out.items())
        yield from (Line(f"not checked: {part.subject}: {part.why}", WARNING) for part in self.not_checked)
        for table, batches in self.uncommitted.items():
            if batches:
                yield Line(f"{table}: {batches} batches published, not yet committed")
        yield Line(", ".join(f"{number:,} {what}" for what, number in self.facts.items()))
        yield verdict_line(self.verdict, f"proven{f' for what was planned since {self.since}' if self.since else ''}")


class Evidence:
    """Collects what the checks find. `on_progress` gets a line per step. After `within_s` whatever is counted next
    raises RetriableError.
    """

    def __init__(self, on_progress: Callable[[str], None] | None = None, within_s: float | None = None) -> None:
        self.violations: list[Violation] = []
        self.not_checked: list[NotChecked] = []
        self.facts: Counter[str] = Counter()
        self.uncommitted: dict[str, int] = {}
        self._per_kind: Counter[tuple[str, str]] = Counter()
        self._on_progress = on_progress
        self._within_s = within_s
        self._until = None if within_s is None else Deadline.after(within_s)

    def violation(
        self, kind: str, subject: object, message: str, *, ranges: tuple[str, ...] = (), batches: tuple[str, ...] = ()
    ) -> None:
        violation = Violation(kind, str(subject), message, ranges, batches)
        if violation in self.violations:
            # The ledger is read more than once.
            return
        self._per_kind[kind, violation.subject] += 1
        if self._per_kind[kind, violation.subject] <= SHOWN_PER_KIND:
            self.violations.append(violation)

    def skipped(self, subject: object, why: str) -> None:
        self.not_checked.append(NotChecked(str(subject), why))

    def count(self, fact: str, number: int = 1) -> None:
        self.facts[fact] += number
        if self._until is not None and self._until.passed:
            looked_at = ", ".join(f"{counted:,} {what}" for what, counted in self.facts.items())
            raise RetriableError(
                f"not proven: {self._within_s:,.0f} s were not enough, {looked_at} were looked at",
                hint="dagster.prove_since has the proof begin later; calve verify takes as long as it needs",
                code=Code.PROOF_TOO_LONG,
            )

    def include(self, other: Evidence) -> None:
        """Add what was collected apart, counts of violations that are not spelled out included."""
        self.violations += [violation for violation in other.violations if violation not in self.violations]
        self.not_checked += other.not_checked
        self.facts.update(other.facts)
        self._per_kind.update(other._per_kind)

    def progress(self, line: str) -> None:
        if self._on_progress is not None:
            self._on_progress(line)

    def report(self, pipeline: str, *, deep: bool, since: str | None = None, ran: bool = True) -> VerifyReport:
        left_out: Counter[str] = Counter()
        for (kind, _), number in self._per_kind.items():
            left_out[kind] += max(0, number - SHOWN_PER_KIND)
        return VerifyReport(
            pipeline=pipeline,
            deep=deep,
            violations=tuple(self.violations),
            not_checked=tuple(dict.fromkeys(self.not_checked)),
            facts=dict(self.facts),
            uncommitted=dict(self.uncommitted),
            left_out=dict(+left_out),
            since=since,
            ran=ran,
        )

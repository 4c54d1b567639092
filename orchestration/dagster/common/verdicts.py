"""What checks say of a pipeline's state, and the checks that several kinds have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from calve.sink_core.control.slots.proof import Proof
    from calve.sink_core.control.status import Blocker, PartitionStatus

H = TypeVar("H")

SHOWN = 20
"""Of many faults, or topics."""

LAG = "lag"
FRESHNESS = "freshness"
"""The checks by objectives that every kind has."""

CHAIN = "chain"
"""The check by what `calve verify` proves without `--deep`, of kinds with slots."""

NOT_RUN = "nothing to prove: it has not run"

RETENTION_SHARE = 0.1
"""Warn when less than this share of a partition's log lies between its start and the next record to read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`warning`: something to look at, rather than something broken. `details` are JSON-able, for people.

    `check` and `subject` come from the kind's row of the check; `subject` is None for a check of all that is moved.
    """

    passed: bool
    text: str
    numbers: Mapping[str, int | float]
    warning: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    check: str = ""
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class Check(Generic[H]):
    """A row of a kind's checks: what it is a check of, what Dagster says of it, when it is red (or yellow: warning).

    `judge` is given what a kind looks at and the subject, empty for all that is moved; None for the proof, which has
    its own report.
    """

    name: str
    of: str
    description: str
    fails_when: str
    judge: Callable[[H, str], Verdict] | None = None


def judged(
    checks: Iterable[Check[H]], seen: H, subjects: Callable[[Check[H]], Iterable[str | None]]
) -> Iterator[Verdict]:
    """Every verdict but the proof, for each of a check's subjects."""
    for check in checks:
        for subject in subjects(check) if check.judge else ():
            assert check.judge is not None
            yield replace(check.judge(seen, subject or ""), check=check.name, subject=subject)


def lag(pending: int, most: int | None) -> Verdict:
    text = f"{pending:,} records wait" + ("" if most is None else f", objectives.lag is {most:,}")
    return Verdict(most is None or pending <= most, text, {"lag": pending})


def blocked(blockers: Sequence[Blocker]) -> Verdict:
    """What keeps records back that no lag counts; something to look at, as nothing is lost."""
    text = "\n".join(str(each) for each in blockers[:SHOWN]) or "nothing keeps records back"
    details = {"blockers": [asdict(each) for each in blockers[:SHOWN]]}
    return Verdict(not blockers, text, {"blockers": len(blockers)}, warning=True, details=details)


def blockers_check(of: str, blockers_of: Callable[[H], Sequence[Blocker]]) -> Check[H]:
    """The row of that check, in every kind; `blockers_of` what the kind looks at."""
    return Check(
        "blockers",
        of,
        "What keeps records back that no lag counts: nothing is lost, and nothing comes either.",
        "warning: `calve status` names something that is blocked",
        lambda seen, _subject: blocked(blockers_of(seen)),
    )


def chain(proof: Proof[Any], holds: str, numbers: Mapping[str, int], **details: Any) -> Verdict:
    """What the proof of a kind with slots says; `holds` if it is one."""
    wrong = proof.every_fault
    text, left = "\n".join(wrong[:SHOWN]) or holds, max(0, len(wrong) - SHOWN)
    bounds = {"faults_not_shown": left, "not_checked": [asdict(each) for each in proof.not_checked]}
    return Verdict(proof.proven, text, numbers, details={**details, **bounds}, check=CHAIN)


def retention(partitions: Iterable[PartitionStatus]) -> Verdict:
    """How near deletion by retention is to records that were not read."""
    # Where nothing was ever deleted, retention is not at work yet.
    lagging = [p for p in partitions if p.lag and p.position is not None and p.log_start]
    shares = {f"{p.topic}[{p.partition}]": p.until_loss / max(1, p.end - p.log_start) for p in lagging}
    if not shares:
        return Verdict(True, "no record waits where retention deletes", {})
    nearest, share = min(shares.items(), key=lambda item: item[1])
    lost = min(p.until_loss for p in lagging) < 0
    text = (
        f"{nearest}: records were deleted before they were read"
        if lost
        else f"{nearest}: {share:.0%} of its log lie before the next record to read; retention deletes from there"
    )
    passed = share >= RETENTION_SHARE
    return Verdict(passed, text, {"share_left": round(share, 4)}, warning=not lost)

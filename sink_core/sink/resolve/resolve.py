"""`calve resolve`: a finding that stands is answered by one of its choices, and a RESOLVED says so to every host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calve.sink_core import findings
from calve.sink_core.control.events import Resolved
from calve.sink_core.error_codes.operations import NO_SUCH_CHOICE, NOT_STANDING
from calve.sink_core.errors import CalveError, ConfigError, FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve import adopt, control, ledger, positions, rebuild, tables
from calve.sink_core.sink.resolve.answer import Answer, Lines, Resolver
from calve.sink_core.sink.resolve.current_findings import current_findings
from calve.sink_core.sink.resolve.refill import refill

RESOLVERS: Mapping[tuple[str, str], Resolver] = {
    (finding.name, choice): resolver
    for finding, resolvers in {
        findings.POSITIONS_MISSING: {"restore": positions.restore},
        findings.POSITIONS_CHANGED: {"restore": positions.restore, "accept": positions.accept},
        findings.POSITIONS_BEYOND_END: {"restore": positions.restore},
        findings.RECORDS_LOST: {"skip": positions.skip},
        findings.TOPIC_RECREATED: {"restart": positions.restart},
        findings.OTHER_CATALOG: {"move": control.move},
        findings.CONTROL_TOPIC_RECREATED: {"rebuild": rebuild.rebuild},
        findings.CONTROL_TOPIC_TRUNCATED: {"rebuild": rebuild.rebuild},
        findings.FOREIGN_EVENTS: {"rebuild": rebuild.rebuild},
        findings.TABLE_FED_TWICE: {"adopt": adopt.adopt},
        findings.TABLE_ROLLED_BACK: {"accept": tables.accept, "recommit": tables.recommit},
        findings.TABLE_RESTORED: {"accept": tables.accept, "recommit": tables.recommit},
        findings.TAG_REMOVED: {"accept": tables.accept, "recommit": tables.recommit},
        findings.TABLE_RECREATED: {"accept": tables.accept, "rebuild": ledger.rebuild},
        findings.TABLE_DROPPED: {"accept": tables.accept, "rebuild": ledger.rebuild},
    }.items()
    for choice, resolver in resolvers.items()
}
"""By finding and choice, for all choices but `REFILL`, which takes Spark and is the caller's to give."""

REFILL = "refill"
NO_CHOICE = "none"
"""Of a finding that is answered elsewhere, as in the pipeline file."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A finding that stands, and the answer that was chosen. Nothing has been changed so far."""

    found: FindingError
    choice: str
    answer: Answer


def prepare(session: Session, finding: str, subject: str | None, choice: str | None) -> Prepared:
    """Look whether the finding stands, and what the choice would do about it; binds the session.

    Raises ConfigError if it does not stand, is one of several, or does not offer the choice.
    """
    found = _wanted(session, current_findings(session), finding, subject)
    if choice not in found.choices:
        offers = f"{found.message}\n{finding} offers {', '.join(found.choices) or NO_CHOICE}"
        raise ConfigError(
            f"{offers}, not {choice}" if choice and found.choices else offers, hint=found.hint, code=NO_SUCH_CHOICE
        )
    return Prepared(found, choice, _resolver(finding, choice)(session, found))


@dataclass(frozen=True, slots=True)
class Offer:
    """A choice of a finding that stands: what it would do, or why it can't be had, as one text."""

    found: FindingError
    choice: str
    would: str


def offers(session: Session, finding: str | None, subject: str | None) -> list[Offer]:
    """Every choice of every finding that stands, or of those asked for; binds the session and changes nothing.

    Raises ConfigError if a finding that is asked for does not stand.
    """
    stand = current_findings(session)
    wanted = [f for f in stand if finding in (None, f.finding) and subject in (None, f.subject)]
    if finding is not None and not wanted:
        wanted = [_wanted(session, stand, finding, subject)]
    return [
        Offer(found, choice, _would(session, found, choice))
        for found in wanted
        for choice in found.choices or (NO_CHOICE,)
    ]


def _would(session: Session, found: FindingError, choice: str) -> str:
    if choice == NO_CHOICE:
        return found.hint
    try:
        return "\n".join(_resolver(found.finding, choice)(session, found).would)
    except CalveError as error:
        return f"is not possible: {error.message}"


def _resolver(finding: str, choice: str) -> Resolver:
    return refill if choice == REFILL else RESOLVERS[finding, choice]


def carry_out(session: Session, prepared: Prepared, by: str) -> Lines:
    """Answer the finding, then write RESOLVED; returns what was done.

    Raises RetriableError if somebody changed meanwhile what the answer rests on, and the FindingError that stands if
    it came back at once.
    """
    found = prepared.found
    done = prepared.answer.carry_out()
    reach("resolve.after-effect")
    for again in current_findings(session):
        if (again.finding, again.subject) == (found.finding, found.subject):
            raise again
    session.log.append(
        Resolved(
            pipeline_id=session.pipeline_id,
            finding=found.finding,
            subject=found.subject,
            choice=prepared.choice,
            by=by,
        )
    )
    return done


def _wanted(session: Session, stand: list[FindingError], finding: str, subject: str | None) -> FindingError:
    matching = [f for f in stand if f.finding == finding and subject in (None, f.subject)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        subjects = ", ".join(f.subject for f in matching)
        raise ConfigError(f"{finding} stands for {subjects}", hint="say which: --subject NAME", code=NOT_STANDING)
    of = f" of {subject}" if subject else ""
    others = "; ".join(f.message for f in stand)
    if others:
        raise ConfigError(f"{finding}{of} does not stand. What does: {others}", hint=stand[0].hint, code=NOT_STANDING)
    raise ConfigError(
        f"{finding}{of} does not stand, nor does any other finding",
        hint=f"nothing is to be done; calve resume {session.pipeline.path} has a stopped pipeline tried again",
        code=NOT_STANDING,
    )

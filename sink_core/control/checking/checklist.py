"""What `calve check` asks, as values: a check is a question with one answer, and one failure doesn't hide the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from confluent_kafka import KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.errors import (
    EXIT_DONE,
    EXIT_STOPPED,
    EXIT_UNREACHABLE,
    CalveError,
    ConfigError,
    RetriableError,
    UnknownOutcome,
)


class Status(StrEnum):
    """`note`: holds, but read it. `skipped`: not asked, since what it needs has failed."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Note:
    """An answer that is no failure but asks for attention."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A question: `ask` says in a line what it found, or raises a CalveError. `needs` are checks that must hold."""

    name: str
    ask: Callable[[], str | Note]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer. `hint` says what to set; `unauthorized` that an ACL is missing; `code` is a failure's."""

    check: str
    status: Status
    message: str
    hint: str = ""
    unauthorized: bool = False
    code: str = ""


class MissingPermission(ConfigError):
    """The principal may not do what a pipeline does."""

    code = Code.NOT_GRANTED


def answers(checks: Iterable[Check], *, before: Callable[[Check], None] | None = None) -> Iterator[Outcome]:
    """Ask one after the other; a check whose need has not held is skipped. `before` is told what comes next."""
    held: dict[str, bool] = {}
    for check in checks:
        if lacking := [need for need in check.needs if not held[need]]:
            outcome = Outcome(check.name, Status.SKIPPED, f"not asked, since {', '.join(lacking)} failed")
        else:
            if before:
                before(check)
            outcome = _ask(check)
        held[check.name] = outcome.status in (Status.OK, Status.NOTE)
        yield outcome


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """3 if a part did not answer, else 1 if a check failed, else 0."""
    found = {outcome.status for outcome in outcomes}
    if Status.UNREACHABLE in found:
        return EXIT_UNREACHABLE
    return EXIT_STOPPED if Status.FAILED in found else EXIT_DONE


def _ask(check: Check) -> Outcome:
    try:
        answer = check.ask()
    except CalveError as error:
        unreachable = isinstance(error, RetriableError | UnknownOutcome)
        status = Status.UNREACHABLE if unreachable else Status.FAILED
        return Outcome(check.name, status, error.message, error.hint, _is_unauthorized(error), error.code)
    if isinstance(answer, Note):
        return Outcome(check.name, Status.NOTE, answer.message, answer.hint)
    return Outcome(check.name, Status.OK, answer)


def _is_unauthorized(error: CalveError) -> bool:
    cause = error.__cause__
    if isinstance(cause, KafkaException):
        return bool(cause.args) and cause.args[0].name().endswith("AUTHORIZATION_FAILED")
    return isinstance(error, MissingPermission)

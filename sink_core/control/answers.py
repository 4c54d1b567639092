"""Answers to findings, of any kind of pipeline: look which stand, say what a choice would do, do it, and say so.

A RESOLVED tells every host. Crash point: `resolve.after-effect`, the finding is answered and no RESOLVED says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Resolved
from calve.sink_core.control.plane import AnyPlane
from calve.sink_core.errors import CalveError, ConfigError, FindingError, RetriableError
from calve.sink_core.failpoints import reach

NO_CHOICE = "none"
"""Of a finding that is answered elsewhere, as in the pipeline file."""

Lines = tuple[str, ...]
P = TypeVar("P", bound=AnyPlane)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a choice would do by what was read so far, a line each; `carry_out` does it and says what was done.

    What `carry_out` does is decided on what it reads itself, after a fence or on the metadata that its swap asserts.
    """

    would: Lines
    carry_out: Callable[[], Lines]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A finding that stands, and the answer that was chosen. Nothing has been changed so far."""

    found: FindingError
    choice: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Offer:
    """A choice of a finding that stands: what it would do, or why it can't be had, as one text."""

    found: FindingError
    choice: str
    would: str


@dataclass(frozen=True, slots=True)
class Answers(Generic[P]):
    """The findings of one pipeline, and what its kind can do about them.

    `current` looks which stand, and binds the plane. `resolvers` prepare an answer, by finding and choice; they raise
    ConfigError where the choice can't answer the finding, and say which can.
    """

    plane: P
    current: Callable[[], list[FindingError]]
    resolvers: Mapping[tuple[str, str], Callable[[P, FindingError], Answer]]

    def prepare(self, finding: str, subject: str | None, choice: str | None) -> Prepared:
        """Look whether the finding stands, and what the choice would do about it.

        Raises ConfigError if it does not stand, is one of several, or does not offer the choice.
        """
        found = self._wanted(self.current(), finding, subject)
        if choice not in found.choices:
            offers = f"{found.message}\n{finding} offers {', '.join(found.choices) or NO_CHOICE}"
            raise ConfigError(
                f"{offers}, not {choice}" if choice and found.choices else offers,
                hint=found.hint,
                code=Code.NO_SUCH_CHOICE,
            )
        return Prepared(found, choice, self.resolvers[finding, choice](self.plane, found))

    def offers(self, finding: str | None, subject: str | None) -> list[Offer]:
        """Every choice of every finding that stands, or of those asked for; changes nothing.

        Raises ConfigError if a finding that is asked for does not stand.
        """
        stand = self.current()
        wanted = [f for f in stand if finding in (None, f.finding) and subject in (None, f.subject)]
        if finding is not None and not wanted:
            wanted = [self._wanted(stand, finding, subject)]
        return [
            Offer(found, choice, self._would(found, choice))
            for found in wanted
            for choice in found.choices or (NO_CHOICE,)
        ]

    def carry_out(self, prepared: Prepared, by: str) -> Lines:
        """Answer the finding, then write RESOLVED; returns what was done.

        Raises RetriableError if somebody changed meanwhile what the answer rests on, and the FindingError that stands
        if it came back at once.
        """
        found = prepared.found
        done = prepared.answer.carry_out()
        reach("resolve.after-effect")
        for again in self.current():
            if (again.finding, again.subject) == (found.finding, found.subject):
                raise again
        self.plane.log.append(
            Resolved(
                pipeline_id=self.plane.pipeline_id,
                finding=found.finding,
                subject=found.subject,
                choice=prepared.choice,
                by=by,
            )
        )
        return done

    def _would(self, found: FindingError, choice: str) -> str:
        if choice == NO_CHOICE:
            return found.hint
        try:
            return "\n".join(self.resolvers[found.finding, choice](self.plane, found).would)
        except CalveError as error:
            return f"is not possible: {error.message}"

    def _wanted(self, stand: list[FindingError], finding: str, subject: str | None) -> FindingError:
        matching = [f for f in stand if f.finding == finding and subject in (None, f.subject)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            subjects = ", ".join(f.subject for f in matching)
            raise ConfigError(
                f"{finding} stands for {subjects}", hint="say which: --subject NAME", code=Code.NOT_STANDING
            )
        of = f" of {subject}" if subject else ""
        others = "; ".join(f.message for f in stand)
        if others:
            raise ConfigError(
                f"{finding}{of} does not stand. What does: {others}", hint=stand[0].hint, code=Code.NOT_STANDING
            )
        raise ConfigError(
            f"{finding}{of} does not stand, nor does any other finding",
            hint=f"nothing is to be done; calve resume {self.plane.pipeline.path} has a stopped pipeline tried again",
            code=Code.NOT_STANDING,
        )


def raised(check: Callable[[], object]) -> Iterator[FindingError]:
    """The finding that a check raises, if any."""
    try:
        check()
    except FindingError as error:
        yield error


def overtaken(plane: AnyPlane, why: str) -> RetriableError:
    """Somebody changed what an answer rests on between its reading and its effect; nothing was written."""
    return RetriableError(
        f"overtaken, nothing was changed: {why}",
        hint=f"calve status {plane.pipeline.path} shows what is left to do",
        code=Code.OVERTAKEN,
    )


def no_answer(found: FindingError, choice: str, why: str) -> ConfigError:
    """The choice can't answer the finding as the world is."""
    others = [other for other in found.choices if other != choice]
    hint = (
        f"other choices: {', '.join(others)}" if others else f"calve explain {found.finding} says what else can be done"
    )
    return ConfigError(
        f"{found.finding}: {found.subject}: {choice} is not possible: {why}", hint=hint, code=Code.NOT_POSSIBLE
    )

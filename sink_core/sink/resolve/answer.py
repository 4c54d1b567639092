"""What an answer to a finding is made of, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calve.sink_core.error_codes.operations import NOT_POSSIBLE, OVERTAKEN
from calve.sink_core.errors import ConfigError, FindingError, RetriableError
from calve.sink_core.sink.loop.session import Session

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a choice would do by what was read so far, a line each; `carry_out` does it and says what was done.

    What `carry_out` does is decided on what it reads itself, after a fence or on the metadata that its swap asserts.
    """

    would: Lines
    carry_out: Callable[[], Lines]


Resolver = Callable[[Session, FindingError], Answer]
"""Prepares an answer. Raises ConfigError where the choice can't answer the finding, and says which can."""


def overtaken(session: Session, why: str) -> RetriableError:
    """Somebody changed what an answer rests on between its reading and its effect; nothing was written."""
    return RetriableError(
        f"overtaken, nothing was changed: {why}",
        hint=f"calve status {session.pipeline.path} shows what is left to do",
        code=OVERTAKEN,
    )


def no_answer(found: FindingError, choice: str, why: str) -> ConfigError:
    """The choice can't answer the finding as the world is."""
    others = [other for other in found.choices if other != choice]
    hint = (
        f"other choices: {', '.join(others)}" if others else f"calve explain {found.finding} says what else can be done"
    )
    return ConfigError(
        f"{found.finding}: {found.subject}: {choice} is not possible: {why}", hint=hint, code=NOT_POSSIBLE
    )

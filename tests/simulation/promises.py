"""What Calve promises, and the two ways in which a history can end badly."""

from __future__ import annotations

from enum import Enum


class Promise(Enum):
    """What Calve promises. Each violation names one."""

    PUBLISHED_ONCE = "every offset is published once"
    COMMITTED_ONCE = "every row is in its table once"
    NOTHING_OVERWRITTEN = "no commit leaves out another's"
    VTTS = "no record before VTTS is missing"
    FILES_STAY = "no needed file is deleted"
    TRUE_FINDINGS = "every finding has a cause"
    TRUE_VERDICTS = "no published batch is called stale"
    KNOWN_ENDS = "a process ends by an error that it may end by"
    COPIED_ONCE = "every record is copied once, in order"
    POSITIONS_FOLLOW = "positions are where the events leave them"
    PROGRESS = "an undisturbed pipeline catches up"


class Violation(BaseException):
    """A promise was broken. Not an Exception: the code under test must not handle it."""

    def __init__(self, promise: Promise, message: str) -> None:
        super().__init__(f"{promise.value}: {message}")
        self.promise = promise


class Crash(BaseException):
    """A process ended with an error that is none of Calve's. A crash of a switch proves nothing of its rule."""

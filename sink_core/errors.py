"""Every error Calve raises on purpose.

    CalveError
    ├── TerminalError            trying again will not help
    │   ├── ConfigError          a file, a flag or a setting is wrong                     exit 2
    │   ├── FindingError         a stored state contradicts the world                     exit 1
    │   ├── ProtocolError        something that must never be; stops and names both values exit 1
    │   │   └── ForeignEvent     a message on the control topic that Calve has not written     exit 1
    │   ├── TableUnusable        a table cannot take the batch as it is                   exit 1
    │   └── BadRecord            a record cannot be stored and `on_bad_record: stop` is set exit 1
    ├── RetriableError           the same call may go through later
    │   ├── Unreachable          a part did not answer                                    exit 3
    │   ├── Fenced               a newer holder of the transactional id took over         exit 3
    │   └── CommitConflict       the table moved between check and commit                 exit 3
    └── UnknownOutcome           the effect may or may not have happened: look, then decide exit 3

Retry code looks at the three classes in the middle, never at a message.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_STOPPED = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3


class CalveError(Exception):
    """Root of the tree. `hint` says what to set or run next."""

    exit_code = EXIT_STOPPED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark tasks, Dagster steps), where keyword arguments would be lost.
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(cls: type[CalveError], state: dict[str, object]) -> CalveError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["message"], state["hint"])
    error.__dict__.update(state)
    return error


class TerminalError(CalveError):
    """Trying again will not help."""


class RetriableError(CalveError):
    """The same call may go through later."""

    exit_code = EXIT_UNREACHABLE


class UnknownOutcome(CalveError):
    """The effect may or may not have happened."""

    exit_code = EXIT_UNREACHABLE


class ConfigError(TerminalError):
    """A file, a flag or a setting is wrong."""

    exit_code = EXIT_BAD_INPUT


class FindingError(TerminalError):
    """A stored state contradicts the world; nothing is guessed.

    `finding` is the finding's name, `stored` and `found` the two values that differ, `subject` the table, topic or
    partition it is about, `choices` the answers that `calve resolve` takes.
    """

    def __init__(
        self, finding: str, subject: str, *, stored: str, found: str, hint: str, choices: tuple[str, ...] = ()
    ) -> None:
        super().__init__(f"{finding}: {subject}: stored {stored}, found {found}", hint=hint)
        self.finding = finding
        self.subject = subject
        self.stored = stored
        self.found = found
        self.choices = choices


class ProtocolError(TerminalError):
    """A state the protocol excludes."""


class ForeignEvent(ProtocolError):
    """A message on the control topic that Calve has not written."""


class TableUnusable(TerminalError):
    """A table cannot take the batch as it is."""


class BadRecord(TerminalError):
    """A record cannot be stored and the pipeline is told to stop on that."""


class Unreachable(RetriableError):
    """A part did not answer."""


class Fenced(RetriableError):
    """A newer holder of the transactional id took over."""


class CommitConflict(RetriableError):
    """The table moved between the check and the commit."""

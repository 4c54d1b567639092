"""Every error Calve raises on purpose.

    CalveError
    ├── TerminalError            trying again will not help
    │   ├── ConfigError          a file, a flag or a setting is wrong                     exit 2
    │   ├── FindingError         a stored state contradicts the world                     exit 1
    │   ├── ProtocolError        something that must never be; stops and names both values exit 1
    │   │   ├── ForeignEvent     a message on the control topic that Calve has not written     exit 1
    │   │   └── OtherKind        a message on the control topic of a pipeline of another kind  exit 1
    │   ├── TableUnusable        a table cannot take the batch as it is                   exit 1
    │   └── BadRecord            a record cannot be stored and `on_bad_record: stop` is set exit 1
    ├── RetriableError           the same call may go through later
    │   ├── Unreachable          a part did not answer                                    exit 3
    │   ├── Fenced               a newer holder of the transactional id took over         exit 3
    │   └── CommitConflict       the table moved between check and commit                 exit 3
    └── UnknownOutcome           the effect may or may not have happened: look, then decide exit 3

Retry code looks at the three classes in the middle, never at a message. Each error has a code for people, its class's
where it has no closer one: `calve explain CODE` says what it means.

No message holds a secret, whatever a library has said of it: what was resolved to one is taken out.
"""

from __future__ import annotations

from calve.sink_core.codes import Code
from calve.sink_core.hidden import without_secrets

EXIT_DONE = 0
EXIT_STOPPED = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3


def printable(text: str, *, keep: str = "") -> str:
    """`text` as a terminal or a log may show it: what can't be seen, such as an escape or a line's end, is written as
    Python writes it, but for the characters to `keep`.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


class CalveError(Exception):
    """Root of the tree. `hint` says what to set or run next; `code` is a row of docs/errors.md or docs/findings.md."""

    exit_code = EXIT_STOPPED
    code: str = Code.STOPPED
    waits_for_answer = False
    """Whether Dagster starts no other run until somebody has answered: what is wrong is stored, and stays."""
    alone: tuple[str, ...] = ()
    """The tables that failed, where all else went on and was done; () where a whole run failed."""
    held: tuple[str, ...] = ()
    """The topics that are not read because of it, until it is mended."""

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        self.message = without_secrets(message)
        self.hint = without_secrets(hint)
        super().__init__(self.message, self.hint)
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        said = f"{self.message} [{self.code}]"
        return f"{said}\n  → {self.hint}" if self.hint else said

    def to_json(self) -> dict[str, str]:
        """Class, code, message and hint."""
        return {"error": type(self).__name__, "code": self.code, "message": self.message, "hint": self.hint}

    def hush(self) -> None:
        """Take out what was resolved to a secret since the error was made."""
        texts = {name: without_secrets(value) for name, value in vars(self).items() if isinstance(value, str)}
        self.__dict__.update(texts)
        self.args = (self.message, self.hint)

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

    waits_for_answer = True


class RetriableError(CalveError):
    """The same call may go through later."""

    exit_code = EXIT_UNREACHABLE
    code = Code.RETRIABLE


class UnknownOutcome(CalveError):
    """The effect may or may not have happened."""

    exit_code = EXIT_UNREACHABLE
    code = Code.UNKNOWN_OUTCOME


class ConfigError(TerminalError):
    """A file, a flag or a setting is wrong.

    At once trying again won't help. Whoever grants what is missing, makes the topic or corrects the setting has nothing
    to resume: the next try goes through.
    """

    waits_for_answer = False
    exit_code = EXIT_BAD_INPUT
    code = Code.WRONG_INPUT


class FindingError(TerminalError):
    """A stored state contradicts the world; nothing is guessed.

    `finding` is the finding's name, `stored` and `found` the two values that differ, `subject` the table, topic or
    partition it is about, `choices` the answers that `calve resolve` takes.
    """

    code = Code.FINDING

    def __init__(
        self,
        finding: str,
        subject: str,
        *,
        stored: str,
        found: str,
        hint: str,
        choices: tuple[str, ...] = (),
        code: str | None = None,
    ) -> None:
        super().__init__(f"{finding}: {subject}: stored {stored}, found {found}", hint=hint, code=code)
        self.finding = finding
        self.subject, self.stored, self.found = map(without_secrets, (subject, stored, found))
        self.choices = choices

    def to_json(self) -> dict[str, str]:
        both = {"subject": self.subject, "stored": self.stored, "found": self.found}
        return {**super().to_json(), "finding": self.finding, **both}


class ProtocolError(TerminalError):
    """A state the protocol excludes."""

    code = Code.EXCLUDED_STATE


class ForeignEvent(ProtocolError):
    """A message on the control topic that Calve has not written."""

    code = Code.FOREIGN_MESSAGE


class OtherKind(ProtocolError):
    """A message on the control topic that a pipeline of another kind has written: `writer`, such as `source`."""

    def __init__(self, writer: str) -> None:
        super().__init__(f"a {writer} has written here", hint="see calve explain other-kind")
        self.writer = writer


class TableUnusable(TerminalError):
    """A table cannot take the batch as it is."""

    code = Code.TABLE_UNUSABLE


class BadRecord(TerminalError):
    """A record cannot be stored and the pipeline is told to stop on that."""

    code = Code.BAD_RECORD


class Unreachable(RetriableError):
    """A part did not answer."""

    code = Code.UNREACHABLE


class Fenced(RetriableError):
    """A newer holder of the transactional id took over."""

    code = Code.FENCED


class CommitConflict(RetriableError):
    """The table moved between the check and the commit."""

    code = Code.CONFLICT

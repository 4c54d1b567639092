"""Where errors end: a message and an exit code, no traceback. Exit codes are those of `calve.sink_core.errors`.

What nobody expected ends in a line too; its traceback goes to a file, or to the terminal with `calve --debug`.
"""

from __future__ import annotations

import logging
import os
import tempfile
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol

import typer

from calve.orchestration.cli.output import STDERR, say_error
from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.references import redact_text
from calve.sink_core.errors import CalveError, TerminalError
from calve.sink_core.hidden import hushing

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

DEBUG = "CALVE_DEBUG"
"""Set, an error that nobody expected is raised, without secrets."""

_PY4J_SAYS = "KeyboardInterrupt while sending command"

P = ParamSpec("P")


def command(app: typer.Typer, name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a command whose CalveErrors become messages; its parameter `as_json`, if any, chooses their form."""

    def register(body: Callable[P, None]) -> Callable[P, None]:
        @wraps(body)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            _quiet_libraries()
            try:
                with hushing():
                    body(*args, **kwargs)
            except CalveError as error:
                say_error(error, as_json=_wants_json(kwargs))
                raise typer.Exit(error.exit_code) from None
            except KeyboardInterrupt:
                STDERR.print("interrupted: nothing is lost, and what was not finished the next run does")
                raise typer.Exit(INTERRUPTED) from None
            except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
                # Typer ends these: whoever reads the output, `head` say, may stop before its end.
                raise
            except Exception as error:
                if os.environ.get(DEBUG):
                    raise
                unexpected = _unexpected(error, name)
                say_error(unexpected, as_json=_wants_json(kwargs))
                raise typer.Exit(unexpected.exit_code) from None

        app.command(name)(guarded)
        return guarded

    return register


class HasFailures(Protocol):
    """A report that can raise what decides a command's exit code."""

    def raise_failures(self) -> None: ...


def raise_failures(report: HasFailures, *, as_json: bool) -> None:
    """End with the exit code of the report's failure; with `--json` the document has told all of them already."""
    try:
        report.raise_failures()
    except CalveError as error:
        if as_json:
            raise typer.Exit(error.exit_code) from None
        raise


def _unexpected(error: Exception, command: str) -> CalveError:
    """One line about an error of a library, or of ours, that has no meaning here; all about it is in a file."""
    handle, name = tempfile.mkstemp(prefix=f"calve-{command}-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        file.write(redact_text(traceback.format_exc()))
    return TerminalError(
        f"unexpected: {describe(error)}",
        hint=f"run again: nothing is lost. If it stays, report it with {name}; calve --debug shows that here",
        code=Code.UNEXPECTED,
    )


def _wants_json(options: dict[str, Any]) -> bool:
    return bool(options.get("as_json"))


def _quiet_libraries() -> None:
    # What a library has to say comes back as an exception; its own words would stand between ours.
    for name in ("pyiceberg", "py4j", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    root = logging.getLogger()
    if _said_by_us not in root.filters:
        root.addFilter(_said_by_us)


def _said_by_us(record: logging.LogRecord) -> bool:
    """py4j logs Ctrl-C with a traceback, past its own logger."""
    return not str(record.msg).startswith(_PY4J_SAYS)

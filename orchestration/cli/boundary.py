"""Where errors end: a message and an exit code, no traceback. Exit codes are those of `sink_core.errors`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol

import typer

from orchestration.cli.output import say_error
from sink_core.errors import CalveError

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

P = ParamSpec("P")


def command(app: typer.Typer, name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register a command whose CalveErrors become messages; its parameter `as_json`, if any, chooses their form."""

    def register(body: Callable[P, None]) -> Callable[P, None]:
        @wraps(body)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            _quiet_libraries()
            try:
                body(*args, **kwargs)
            except CalveError as error:
                say_error(error, as_json=_wants_json(kwargs))
                raise typer.Exit(error.exit_code) from None
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED) from None

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


def _wants_json(options: dict[str, Any]) -> bool:
    return bool(options.get("as_json"))


def _quiet_libraries() -> None:
    # What a library has to say comes back as an exception; its own words would stand between ours.
    for name in ("pyiceberg", "py4j", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)

"""What a command says: lines for people, or one JSON document on stdout for machines. Spinners only on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import Enum
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from calve.sink_core.error_codes.files import NOBODY_TO_ASK
from calve.sink_core.errors import CalveError, ConfigError, FindingError, printable
from calve.sink_core.finding import NOTHING, PARTLY, PROVEN, VIOLATED
from calve.sink_core.hidden import plain_without_secrets, without_secrets
from calve.sink_core.timing import LONG_STEP

if TYPE_CHECKING:
    from calve.sink_core.control.rounds import Ending

STDOUT = Console(highlight=False, markup=False, soft_wrap=True)
STDERR = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

NOT_RUN = "nothing to prove: has not run"

FIRST_S, EVERY_S = 10.0, 30.0
"""Seconds until what is no terminal hears what goes on, and between two lines then."""


def say(text: str = "", *, style: str | None = None) -> None:
    """A line on stdout; coloured on a terminal only."""
    STDOUT.print(printable(without_secrets(text), keep="\n"), style=style)


def say_json(value: object) -> None:
    """A JSON document on stdout: dataclasses as objects, what JSON doesn't have as text."""
    # Whatever JSON has no form for is a text by now, in which a value may stand.
    plain = json.loads(json.dumps(_plain(value), default=_as_json))
    text = json.dumps(plain_without_secrets(plain), indent=2, ensure_ascii=False)
    # What can't be seen is escaped: a document is looked at on terminals too.
    typer.echo("\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n")))


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def ending_document(report: Ending) -> dict[str, object]:
    """How a run of any kind ended, for its JSON document."""
    return {
        "ended": report.ended,
        "stopped_early": report.stopped_early,
        "blockers": [asdict(each) for each in report.blockers],
    }


def say_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on a terminal; elsewhere a line per row, the columns' names first, separated by tabs."""
    rows = [[printable(without_secrets(cell)) for cell in row] for row in rows]
    if not STDOUT.is_terminal:
        for row in [columns, *rows]:
            typer.echo("\t".join(row))
        return
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    STDOUT.print(table)


def say_verdict(verdict: str, proven: str) -> None:
    """How a proof ended, `proven` if it holds."""
    said = {
        PROVEN: (proven, "green"),
        VIOLATED: ("NOT proven", "red"),
        PARTLY: (f"{proven}, but for what is not verifiable", "yellow"),
        NOTHING: (NOT_RUN, "yellow"),
    }
    text, style = said[verdict]
    say(text, style=style)


def say_error(error: CalveError, *, as_json: bool) -> None:
    """Message and hint, on stderr; with `--json` on stdout, so that there always is one document."""
    if as_json:
        say_json(error_document(error))
    else:
        STDERR.print(printable(without_secrets(str(error)), keep="\n"), style="red" if STDERR.is_terminal else None)


def error_document(error: CalveError) -> dict[str, Any]:
    """An error as JSON: its class, code, message and hint; of a finding both values too."""
    document: dict[str, Any] = {"error": type(error).__name__, "code": error.code}
    document |= {"message": error.message, "hint": error.hint}
    if isinstance(error, FindingError):
        document |= {
            "finding": error.finding,
            "subject": error.subject,
            "stored": error.stored,
            "found": error.found,
        }
    return document


def ask(question: str, *, as_json: bool) -> None:
    """Ask before something is done; a no ends the command. Raises ConfigError where nobody can answer."""
    if as_json or not sys.stdin.isatty():
        raise ConfigError(
            "nobody to ask here; nothing was changed",
            hint="add --yes once you have read what it does",
            code=NOBODY_TO_ASK,
        )
    typer.confirm(question, abort=True)


@contextmanager
def working(on: str) -> Generator[Status]:
    """What something that takes its time is at, for `update` to say: a spinner on a terminal, elsewhere lines on stderr
    from `FIRST_S` seconds on."""
    # On the console that lines are written to, if it is a terminal: it keeps the two apart.
    console = STDOUT if STDOUT.is_terminal else STDERR
    with console.status(on) as status, _hearing(status):
        if console.is_terminal:
            yield status
            return
        ended = Event()
        thread = Thread(target=_tell, args=(status, ended), daemon=True)
        thread.start()
        try:
            yield status
        finally:
            ended.set()
            thread.join()


@contextmanager
def _hearing(status: Status) -> Generator[None]:
    """Show what a long step is at."""
    before = LONG_STEP.set(status.update)
    try:
        yield
    finally:
        LONG_STEP.reset(before)


def _tell(status: Status, ended: Event) -> None:
    began, wait_s = time.monotonic(), FIRST_S
    while not ended.wait(wait_s):
        STDERR.print(f"{printable(str(status.status))} ({time.monotonic() - began:,.0f} s)")
        wait_s = EVERY_S


def _as_json(value: object) -> object:
    return value.value if isinstance(value, Enum) else str(value)


def _plain(value: object) -> object:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

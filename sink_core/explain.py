"""Every code and finding by what users call it, and the two pages that are made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import ModuleType

from calve.sink_core.error_codes import (
    catalogs,
    files,
    general,
    hudi,
    kafka,
    machine,
    operations,
    records,
    source,
    tables,
)
from calve.sink_core.error_codes.code import ErrorCode
from calve.sink_core.error_codes.files import NO_SUCH_NAME
from calve.sink_core.errors import ConfigError
from calve.sink_core.finding import Choice, FindingKind
from calve.sink_core.findings import FINDINGS

_COMMAND = "python -m calve.sink_core.config.document"
_LINK = re.compile(r"\[([^][]*+)\]\((?:([\w.]+)(#[\w-]+)?)\)")


def _rows(module: ModuleType) -> tuple[ErrorCode, ...]:
    return tuple(value for value in vars(module).values() if isinstance(value, ErrorCode))


AREAS = {
    "Files, settings and options": _rows(files),
    "Kafka": _rows(kafka),
    "Catalogs and storage": _rows(catalogs),
    "Tables": _rows(tables),
    "Hudi tables": _rows(hudi),
    "Records": _rows(records),
    "Operating a pipeline": _rows(operations),
    "The machine": _rows(machine),
    "Sources": _rows(source),
    "What has no closer code": _rows(general),
}
"""The codes of errors, by area."""

CODES = {row.code: row for rows in (*AREAS.values(), FINDINGS.values()) for row in rows}
"""The findings' codes too."""

_ANSWERS = (
    (
        "no connection, none in time, HTTP 5xx or 429, an election, too few brokers, a full disk, a lock, a read-only "
        "database, an error that Calve does not know",
        "passes by itself",
        "3",
        "after 30 s, doubled with each failure, half an hour at most",
        "nobody: the first try after it has passed",
    ),
    (
        "HTTP 401 or 403, an ACL, a topic or slot that is not there, a refused setting or value of a file",
        "somebody has to grant, make or correct something",
        "2",
        "as above",
        "whoever grants it, makes it or corrects it; nothing is to be resumed",
    ),
    (
        "a stored state that contradicts the world (a finding), a bad record with `on_bad_record: stop`, a table that "
        "can't be as it is, a state that the protocol excludes",
        "terminal",
        "1",
        "none",
        "`calve resume FILE`, for a finding `calve resolve FILE`, a run by hand that goes well, or a changed file",
    ),
)
"""What is answered, the error's kind, the exit code, when Dagster tries again, and who ends it."""


def look_up(word: str) -> ErrorCode:
    """The row of a code, such as `CLV-2103` or `2103`, or of a finding's name. Raises ConfigError for another word."""
    code = word.upper() if word.upper().startswith("CLV-") else f"CLV-{word}"
    found = FINDINGS.get(word.lower()) or CODES.get(code)
    if found is None:
        near = ", ".join(get_close_matches(word, [*FINDINGS, *CODES], n=3, cutoff=0.0))
        hint = "calve explain lists all codes and findings"
        raise ConfigError(f"{word}: no code or finding; the nearest are {near}", hint=hint, code=NO_SUCH_NAME)
    return found


def plain(text: str) -> str:
    """For a terminal: links as the names of the documents that they lead to."""
    return _LINK.sub(lambda link: link[2] and f"{link[1]} (docs/{link[2]})" if link[1] != link[2] else link[1], text)


def errors_page() -> str:
    """docs/errors.md."""
    parts = [
        f"""# Errors

Written from `sink_core/error_codes/` by `{_COMMAND}`; don't edit.

A message ends with its code, and what to set or run next follows; `calve explain CLV-2103` prints a row of this page.
Findings have codes as well: [findings.md](findings.md). [operations.md](operations.md#exit-codes) has the exit codes.
Errors of Kafka begin with what Calve was doing, then librdkafka's name for the error.

## Who answers an error

What brokers, registries, catalogs, stores and databases answer decides it, by its kind and never by its sentence:

| answer | error | exit code | Dagster's next run | who ends it |
|---|---|---|---|---|
{"".join(f"| {' | '.join(row)} |" + chr(10) for row in _ANSWERS)}"""
    ]
    for area, rows in AREAS.items():
        cells = (f"| {row.code} | {row.title} | {row.meaning} | {row.remedy} |" for row in rows)
        parts += [f"## {area}\n", "| code | what | cause | what to do |\n|---|---|---|---|", *cells, ""]
    return "\n".join(parts)


def findings_page() -> str:
    """docs/findings.md."""
    head = f"""# Findings

Written from `sink_core/findings.py` by `{_COMMAND}`; don't edit.

A finding is a stored state that contradicts the world. It stops the pipeline; how it is answered stands in
[operations.md](operations.md#findings). `calve explain table-dropped` prints a section of this page.
"""
    return "\n".join([head, *(line for kind in FINDINGS.values() for line in _section(kind))])


def _section(kind: FindingKind) -> Iterator[str]:
    yield f"## {kind.name}\n"
    yield f"{kind.title}. `{kind.code}`, raised for the {kind.part}.\n"
    yield f"*Seen by:* {kind.seen_by}.\n"
    yield f"*Cause:* {kind.meaning}\n"
    yield f"*What to do:* {kind.remedy}\n"
    if kind.choices:
        yield "| choice | does |\n|---|---|"
        yield from (f"| `{choice.name}`{_where(choice)} | {choice.does} |" for choice in kind.choices)
        yield ""
    if kind.sql:
        yield f"```sql\n{kind.sql}\n```\n"


def choices_of(kind: FindingKind) -> Iterable[tuple[str, str]]:
    """Each choice, with the tables that it is for, and what it does."""
    return ((f"{choice.name}{_where(choice)}", choice.does) for choice in kind.choices)


def _where(choice: Choice) -> str:
    return {"all": "", "ledger": " (of the ledger)", "not the ledger": " (not of the ledger)"}[choice.tables]

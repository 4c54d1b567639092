"""Every code and finding by what users call it, and the page that is made of the findings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from calve.sink_core.codes import Code, Explanation
from calve.sink_core.errors import ConfigError
from calve.sink_core.finding import Choice, FindingKind
from calve.sink_core.findings import FINDINGS

_COMMAND = "python -m calve.sink_core.config.document"
_LINK = re.compile(r"\[([^][]*+)\]\((?:([\w.]+)(#[\w-]+)?)\)")


CODES = {row.code: row for row in (*(code.explanation for code in Code), *FINDINGS.values())}
"""The codes of errors and of findings, in the order of their pages."""


def look_up(word: str) -> Explanation:
    """The row of a code, such as `CLV-2103` or `2103`, or of a finding's name. Raises ConfigError for another word."""
    code = word.upper() if word.upper().startswith("CLV-") else f"CLV-{word}"
    found = FINDINGS.get(word.lower()) or CODES.get(code)
    if found is None:
        near = ", ".join(get_close_matches(word, [*FINDINGS, *CODES], n=3, cutoff=0.0))
        hint = "calve explain lists all codes and findings"
        raise ConfigError(f"{word}: no code or finding; the nearest are {near}", hint=hint, code=Code.NO_SUCH_NAME)
    return found


def plain(text: str) -> str:
    """For a terminal: links as the names of the documents that they lead to."""
    return _LINK.sub(lambda link: link[2] and f"{link[1]} (docs/{link[2]})" if link[1] != link[2] else link[1], text)


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

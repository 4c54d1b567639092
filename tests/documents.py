"""Parts of the documents, for tests that hold the code to them or them to the code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def text(document: str) -> str:
    """`document` is a path from the repository's root."""
    return (ROOT / document).read_text()


def section(document: str, title: str) -> str:
    """From the heading `title` to the next heading of the same or a higher level."""
    match = re.search(rf"^(#+) {re.escape(title)}$", text(document), re.MULTILINE)
    assert match, f"{document} has no section {title!r}"
    rest = text(document)[match.end() :]
    return re.split(rf"^#{{1,{len(match[1])}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table_rows(markdown: str) -> list[list[str]]:
    """The cells of every table, the two lines of its head included."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]

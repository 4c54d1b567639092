"""Parts of the documents and of the code, for tests that hold one to the other.

`python -m tests.documents` writes those parts of docs/dagster.md that are made of data: the tables of checks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from calve.orchestration.dagster.common.verdicts import Check
from calve.orchestration.dagster.mirror.verdicts import CHECKS as MIRROR_CHECKS
from calve.orchestration.dagster.sink.verdicts import CHECKS as SINK_CHECKS
from calve.orchestration.dagster.source.checks import CHECKS as SOURCE_CHECKS

ROOT = Path(__file__).parents[1]
DAGSTER = "docs/dagster.md"
CHECKS: dict[str, Sequence[Check[Any]]] = {"sink": SINK_CHECKS, "mirror": MIRROR_CHECKS, "source": SOURCE_CHECKS}
"""By kind of pipeline."""


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


@cache
def sources() -> dict[str, ast.Module]:
    """The product's modules by their paths from the repository's root."""
    packages = ("sink_core", "spark_jobs", "orchestration")
    files = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files}


def named(*, outside: tuple[str, ...]) -> set[str]:
    """What the product's code names other than in an import, in modules whose paths begin in no other way."""
    nodes = [node for path, tree in sources().items() if not path.startswith(outside) for node in ast.walk(tree)]
    return {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}


def with_checks(page: str) -> str:
    """docs/dagster.md with each kind's table of checks as they are in the code."""
    for kind, checks in CHECKS.items():
        rows = [f"| `{check.name}` | {check.of} | {check.fails_when} |" for check in checks]
        table = "\n".join(["| check | of | fails when |", "|---|---|---|", *rows])
        begin, end = f"<!-- checks of a {kind}: python -m tests.documents -->", "<!-- end of checks -->"
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    (ROOT / DAGSTER).write_text(with_checks(text(DAGSTER)))

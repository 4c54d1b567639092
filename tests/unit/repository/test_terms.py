"""docs/terms.md is the law: the words that it bans stand nowhere else."""

from __future__ import annotations

import re

import pytest

from tests.documents import ROOT, section, table_rows

BANNED = [
    (word.strip(), row[1])
    for row in table_rows(section("docs/terms.md", "Words that are not used"))[2:]
    for word in row[0].split(",")
]


def texts() -> dict[str, str]:
    paths = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for package in ("sink_core", "spark_jobs", "orchestration", "calve"):
        paths += (path for path in (ROOT / package).rglob("*.py") if not path.is_symlink())
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    return {name: text for name, text in found.items() if name != "docs/terms.md"}


@pytest.mark.parametrize(("word", "better"), BANNED)
def test_a_word_that_is_banned_stands_nowhere(word: str, better: str) -> None:
    # A line may end within it, a name have it joined.
    banned = re.compile(r"(?<![\w-])" + r"[\s_]+".join(map(re.escape, word.split())) + r"\b", re.IGNORECASE)
    assert not [name for name, text in texts().items() if banned.search(text)], f"write: {better}"


def test_the_list_is_read() -> None:
    assert ("under way", "in progress") in BANNED

"""Tests lie where CONTRIBUTING's layout says, and each test module is short enough to be read."""

from __future__ import annotations

from pathlib import Path

from tests.documents import ROOT

UNIT = ROOT / "tests/unit"
OF_NO_MODULE = {"calve", "repository"}
"""Folders of tests/unit for the public names; for tests of documents, this layout and the parts right in `tests`."""

LONGEST = 400
"""Lines."""


def has_modules(folder: Path) -> bool:
    return any(module.name != "__init__.py" for module in folder.glob("*.py"))


def mirrors(folder: Path) -> bool:
    """Whether a folder of tests/unit is that of a package in `sink_core`, in the repository or in `tests`."""
    if folder == Path():
        return False
    return any(has_modules(root / folder) for root in (ROOT / "sink_core", ROOT, ROOT / "tests"))


def test_a_unit_test_lies_in_the_folder_of_what_it_tests() -> None:
    found = sorted(path.relative_to(UNIT) for path in UNIT.rglob("test_*.py"))
    assert found
    lost = [path for path in found if path.parent.as_posix() not in OF_NO_MODULE and not mirrors(path.parent)]
    assert not lost, "no package has their folder, move them to that of what they test (CONTRIBUTING, Layout): " + (
        ", ".join(f"tests/unit/{path.as_posix()}" for path in lost)
    )


def test_a_folder_mirrors_a_package_only_if_that_has_modules() -> None:
    assert mirrors(Path("tables"))
    assert mirrors(Path("sink_core"))
    assert mirrors(Path("orchestration/cli"))
    assert mirrors(Path("mutants"))
    assert not mirrors(Path("cli"))
    assert not mirrors(Path("docs"))
    assert not mirrors(Path())


def test_a_test_module_is_cut_where_it_changes_subject_before_it_is_too_long() -> None:
    modules = sorted((ROOT / "tests").rglob("test_*.py"))
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in modules}
    too_long = [f"{name} ({count})" for name, count in lines.items() if count > LONGEST]
    assert not too_long, f"over {LONGEST} lines, cut them where they change subject: " + ", ".join(too_long)

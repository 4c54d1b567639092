"""The public names: what users import, and nothing that they don't ask for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import calve

ROOT = Path(__file__).parents[3]
PACKAGES = ("orchestration", "sink_core", "spark_jobs")
PRIVATE = tuple(f"calve.{package}" for package in PACKAGES)


def test_what_is_public_is_listed_and_there() -> None:
    assert dir(calve) == sorted(calve.__all__)
    assert [
        name for name in calve.__all__ if getattr(calve, name).__name__ not in (name, name.removesuffix("_pipeline"))
    ] == []


def test_another_name_is_refused_as_any_module_does() -> None:
    with pytest.raises(AttributeError, match="module 'calve' has no attribute 'load_pipelines'"):
        _ = calve.load_pipelines  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    program = f"import sys, calve; print(sorted(set(sys.modules) & {{'dagster', 'pydantic', *{PRIVATE}}}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_documents_import_nothing_else() -> None:
    found = {
        f"{file.name}: {module}"
        for file in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
        for code in re.findall(r"^ *```python\n(.*?)```", file.read_text(), re.MULTILINE | re.DOTALL)
        for node in ast.walk(ast.parse(dedent(code)))
        for module in _imported(node)
        if module.startswith((*PACKAGES, *PRIVATE))
    }
    assert found == set()


def test_a_package_has_one_name() -> None:
    """Below `calve`, as it is installed: under its own there would be each of its classes a second time."""
    found = {
        f"{file.relative_to(ROOT)}: {module}"
        for folder in (*PACKAGES, "calve", "examples", "bench", "tests")
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for module in _imported(node)
        if module.partition(".")[0] in PACKAGES
    }
    assert found == set()
    assert {package: (ROOT / "calve" / package).readlink().as_posix() for package in PACKAGES} == {
        package: f"../{package}" for package in PACKAGES
    }


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

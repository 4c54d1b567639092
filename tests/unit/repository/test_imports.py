"""Imports go downwards, in no circle, and each library is used in its own rooms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.imports import CONTRIBUTING, PACKAGES, ROOMS, cycles, folders, modules, room_of, written

TYPE_LANGUAGE = {"pyiceberg.schema", "pyiceberg.types"}
"""What is said of columns everywhere."""


def test_no_folder_imports_one_above_it() -> None:
    order = {room: place for place, room in enumerate((*PACKAGES[:2], *ROOMS))}
    upwards = [
        f"{importer} imports {other}"
        for folder, others in folders().items()
        for its, pairs in others.items()
        for importer, other in pairs
        if order[room_of(its)] < order[room_of(folder)]
    ]
    assert not upwards


def test_no_kind_knows_another() -> None:
    kinds = {"sink": {"mirror"}, "mirror": {"sink", "iceberg", "tables", "records"}}
    reached = {(room_of(folder), room_of(its)) for folder, others in folders().items() for its in others}
    assert [(kind, other) for kind, others in kinds.items() for other in others if (kind, other) in reached] == []


def test_no_folders_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for folder, others in folders().items():
        graph.setdefault(_with_its_own(folder), set()).update(map(_with_its_own, others))
    assert cycles({folder: others - {folder} for folder, others in graph.items()}) == []


def _with_its_own(folder: str) -> str:
    """The folder of a kind in Dagster with those below it: what it registers is their sum."""
    return ".".join(folder.split(".")[:3]) if folder.startswith("orchestration.dagster") else folder


def test_a_circle_is_seen_over_any_number_of_folders() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}) == [["a", "b", "c"]]


def test_the_graph_in_contributing_is_the_one_that_there_is() -> None:
    text = CONTRIBUTING.read_text()
    assert text == written(text), "run python -m tests.imports"


@pytest.mark.parametrize(
    ("library", "package"), [("pyspark", "spark_jobs"), ("py4j", "spark_jobs"), ("dagster", "orchestration")]
)
def test_a_library_is_used_in_one_package(library: str, package: str) -> None:
    # Hudi's Java client is driven by it too.
    drives = {name for name in modules() if library == "py4j" and name.startswith("sink_core.hudi.java.")}
    users = {
        name.split(".")[0] for name, path in modules().items() if library in _libraries(path) and name not in drives
    }
    # Dagster's resource for a run starts the session that the user's settings describe.
    allowed = {package, "orchestration"} if library == "pyspark" else {package}
    assert users <= allowed


def _libraries(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return {name.split(".")[0] for name in found}


def test_the_ground_imports_no_library_but_for_offsets() -> None:
    ground = [path for name, path in modules().items() if name.count(".") == 1 and name.startswith("sink_core.")]
    users = {path.relative_to(ROOT).as_posix(): _libraries(path) for path in ground}
    kinds = {"pyiceberg", "pyspark", "dagster", "confluent_kafka"}
    assert not {path: used & kinds for path, used in users.items() if used & kinds}

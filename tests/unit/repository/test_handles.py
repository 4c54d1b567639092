"""Outside iceberg/ nobody knows more of pyiceberg than columns: tables are handles, and what is to be known of one is
asked for by name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.documents import ROOT
from tests.imports import modules

COLUMNS = {"pyiceberg.schema", "pyiceberg.types"}
ATTRIBUTES = {"metadata", "io", "refs", "data_file", "file_path", "record_count", "file_size_in_bytes", "upper_bounds"}
METHODS = {"location_provider", "scan", "current_snapshot", "specs", "sort_order", "load_table", "commit_table"}
"""Counted where they are called: some are names of fields elsewhere."""

USERS = {"orchestration/defs/flights_by_carrier.py"}
"""Modules that are examples of what a user writes, who has pyiceberg."""

POSITIONS = {
    *("dead_letters/events", "dead_letters/jobs", "loop/decision", "loop/planning"),
    *("range_jobs/job", "range_jobs/jobs", "resolve/positions"),
}
"""Modules that use `metadata` of positions in Kafka, as Kafka names it."""


def trees() -> dict[str, ast.AST]:
    """The product's modules outside iceberg/, by their paths."""
    found = {path.relative_to(ROOT).as_posix(): path for path in modules().values()}
    return {name: ast.parse(path.read_text()) for name, path in found.items() if "_core/iceberg/" not in name}


def imported(tree: ast.AST) -> set[str]:
    """What is imported of pyiceberg, wherever in the module, besides columns."""
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {name for name in found if name.partition(".")[0] == "pyiceberg"} - COLUMNS


def looked_into(tree: ast.AST) -> Iterator[str]:
    """The attributes that tell what a table or a data file is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield node.func.attr


def test_outside_iceberg_only_columns_are_known_of_pyiceberg() -> None:
    assert {name for name, tree in trees().items() if imported(tree)} == USERS


def test_the_sink_does_not_look_into_tables_and_files() -> None:
    used = {name: set(looked_into(tree)) for name, tree in trees().items() if name.startswith("sink_core/sink/")}
    of_positions = {f"sink_core/sink/{name}.py" for name in POSITIONS}
    assert {name for name in used if used[name]} == of_positions
    assert all(used[name] == {"metadata"} for name in of_positions)


def test_what_is_seen() -> None:
    assert imported(ast.parse("import pyiceberg.io\ndef f():\n    from pyiceberg.table import Table"))
    assert not imported(ast.parse("from pyiceberg.schema import Schema\nimport pyarrow"))
    assert set(looked_into(ast.parse("table.io.new_input(path)\ntable.scan()"))) == {"io", "scan"}
    assert not set(looked_into(ast.parse("table.uuid\nsettings.sort_order")))

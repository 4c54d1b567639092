"""Private names of libraries are used in each package's `compat.py` only, where a canary watches each."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.documents import ROOT

PACKAGES = ("sink_core", "spark_jobs", "orchestration")
MODULES = [
    *sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
    *sorted((ROOT / "calve").glob("*.py")),
]
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}
"""Python documents them."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def private_names(source: str, inherited: frozenset[str] = frozenset()) -> Iterator[str]:
    """Where a module uses a private name that it doesn't define itself. `inherited` are those of classes that it
    extends and that are Calve's.
    """
    tree = ast.parse(source)
    own = set(defined(tree)) | inherited
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [node.attr] if node.attr not in own | OF_NAMED_TUPLES else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            named = node.args[1] if len(node.args) > 1 else None
            found = [str(named.value)] if isinstance(named, ast.Constant) and named.value not in own else []
        else:
            continue
        for name in found:
            if any(map(is_private, name.split("."))):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def defined(tree: ast.AST) -> Iterator[str]:
    """Functions, and what is assigned: names, fields and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "calve" else ("calve", *parts)).removesuffix(".__init__")


def classes_of(path: Path) -> Iterator[type]:
    """Classes that the module makes of others. Not imported if it makes none."""
    tree = ast.parse(path.read_text())
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
    if names:
        module = import_module(module_name(path))
        yield from (vars(module)[name] for name in names)


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("calve.")


def of_bases(path: Path) -> frozenset[str]:
    """Names that Calve's own classes of other modules define, which the module extends."""
    bases = {base for kind in classes_of(path) for base in kind.__mro__[1:] if is_ours(base)}
    files = {sys.modules[base.__module__].__file__ for base in bases}
    return frozenset(name for file in files if file for name in defined(ast.parse(Path(file).read_text())))


def overridden(path: Path) -> Iterator[str]:
    """Private methods and attributes of a library's class in whose place the module puts its own."""
    tree = ast.parse(path.read_text())
    written = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for kind in classes_of(path):
        theirs = {name for base in kind.__mro__[1:] if not is_ours(base) for name in vars(base)}
        for name in sorted(theirs & set(defined(written[kind.__name__])) - OF_NAMED_TUPLES):
            if is_private(name):
                yield f"{kind.__name__}.{name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_private_name_of_a_library_is_used_in_a_compat_module_only(path: Path) -> None:
    if path.name == "compat.py":
        return
    found = [*private_names(path.read_text(), of_bases(path)), *overridden(path)]
    assert not found, f"give them a public name in the package's compat.py, and a canary: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "import dagster._core",
        "from pyiceberg.manifest import _inherit",
        "from dagster._core.storage import Storage",
        "class A:\n    def a(self, scan):\n        return scan._tasks",
        "class A(Base):\n    def a(self):\n        return self._session",
        "class A(Base):\n    def a(self):\n        return super()._meta",
        "getattr(catalog, '_write')",
    ],
)
def test_what_is_found(source: str) -> None:
    assert len(list(private_names(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def __init__(self):\n        self._a = 1\n    def b(self, other):\n        return other._a",
        "from __future__ import annotations",
        "row._replace(a=1)",
        "kind.__name__",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert not list(private_names(source))


def test_a_method_that_takes_the_place_of_a_librarys_is_found() -> None:
    assert list(overridden(ROOT / "sink_core/iceberg/compat.py")) == [
        "OpenManifestWriter._meta",
        "OpenManifestWriter._with_partition",
    ]
    assert list(overridden(ROOT / "sink_core/iceberg/catalog/compat.py")) == [
        "OpenRestCatalog._create_session",
        "OpenRestCatalog._delete_old_metadata",
    ]

"""Which folder of the product imports which, as its modules say: for the test of directions, and the graph that
CONTRIBUTING shows. `python -m tests.imports` writes the graph there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.documents import ROOT

PACKAGES = ("orchestration", "spark_jobs", "sink_core")
GROUND = "(ground)"
"""The modules right in `sink_core`: values, errors and their tables, which all may use."""

ROOMS = ("sink", "mirror", "source", "hudi", "iceberg", "tables", "records", "control", "kafka", "config", GROUND)
"""Of `sink_core`, from the top: each may import those after it."""

BEGIN, END = "<!-- rooms: python -m tests.imports -->", "<!-- end of rooms -->"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def modules() -> dict[str, Path]:
    """The product's modules by dotted name, without `calve`."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path, known: Iterable[str]) -> set[str]:
    """Those of the known modules that one imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{name.name}" for name in node.names)
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    return {name.removeprefix("calve.") for name in found if name.startswith("calve.")} & set(known)


def folders() -> dict[str, dict[str, list[tuple[str, str]]]]:
    """By folder and folder that it imports the pairs of modules that say so. Empty `__init__` files say nothing."""
    known = modules()
    graph: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for name, path in known.items():
        own = name if path.name == "__init__.py" else name.rpartition(".")[0]
        graph.setdefault(own, {})
        for other in imported(path, known) - {name}:
            its = other if known[other].name == "__init__.py" else other.rpartition(".")[0]
            if its != own and known[other].name != "__init__.py":
                graph[own].setdefault(its, []).append((name, other))
    return graph


def room_of(folder: str) -> str:
    """The room of a folder: a package, or the first folder below `sink_core`."""
    package, *rest = folder.split(".")
    if package != "sink_core":
        return package
    return rest[0] if rest and rest[0] in ROOMS else GROUND


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Folders that import each other, over whatever others; each group sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, left = set[str](), [start]
        while left:
            for other in graph.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        reached[start] = seen
    groups = {tuple(sorted({a, *(b for b in reached[a] if a in reached.get(b, ()))})) for a in graph if a in reached[a]}
    return [list(group) for group in sorted(groups)]


def drawn() -> str:
    """The rooms and what each imports, as Mermaid draws it; an arrow that follows from two others is left out."""
    edges: dict[str, set[str]] = {}
    for folder, others in folders().items():
        edges.setdefault(room_of(folder), set()).update(room_of(other) for other in others)
    order = [*PACKAGES[:2], *ROOMS]
    for room, others in edges.items():
        others.discard(room)
    below = {room: set[str]() for room in order}
    for room in reversed(order):
        below[room] = set[str]().union(*({other, *below[other]} for other in edges.get(room, ())))
    direct = {
        room: [o for o in order if o in edges.get(room, ()) and not any(o in below[p] for p in edges[room] if p != o)]
        for room in order
    }
    names = {room: room.strip("()") for room in order}
    lines = [f"    {names[room]} --> {' & '.join(names[o] for o in direct[room])}" for room in order if direct[room]]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def written(text: str) -> str:
    """CONTRIBUTING with the graph as it is."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{drawn()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    CONTRIBUTING.write_text(written(CONTRIBUTING.read_text()))

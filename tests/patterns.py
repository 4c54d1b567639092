"""Every compiled regular expression of the package over hostile text, in the way that its module uses it.

Run as a process of its own (`python -m tests.patterns 1000000`, characters of a text), which says what it is at: a
search in vain can't be ended.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from calve import orchestration, sink_core, spark_jobs

REPEATED = (
    "a", "token", "token=", "0", "1e-1,", " ", "\n", "\t\n", '"', "'", "\\", '"\\', "'a',", "{", "[", "](", "`", "(",
    "a.b-", "://a:", "://a:@", "@", "/", "calve.a.", "é", "\u202e", "${ENV:", "\\u00", "Column(/", " from <_io.BytesIO",
)  # fmt: skip
_LEFT_OUT = ("orchestration.defs", "orchestration.definitions")
"""What opens a project when it is imported."""

_LISTING = "calve.sink_core.sink.dead_letters.listing"
MOST = {
    **{f"{_LISTING}.{name}": 200 for name in ("_DIFFERS", "_QUOTED")},
    **{f"{_LISTING}.{name}": 4_096 for name in ("_MEMBER", "_NESTED")},
}
"""Characters that a pattern is ever given at most, where that is little: a verdict, or the head of a value."""

USES = {"calve.sink_core.source.files.text._RECORD": "match"}
"""Of patterns that are used under other names."""

_SEARCHES = {"search", "finditer", "findall", "sub", "subn", "split"}
Pattern = re.Pattern[str] | re.Pattern[bytes]


def patterns() -> Iterator[tuple[str, Pattern, str]]:
    """Name, pattern and use (`search`, `match` or `fullmatch`) of each pattern that a module of the package holds."""
    modules = [module for package in (sink_core, spark_jobs, orchestration) for module in _modules(package)]
    sources = {module.__name__: Path(str(module.__file__)).read_text() for module in modules}
    everywhere = "\n".join(sources.values())
    for module in modules:
        for name, value in vars(module).items():
            for pattern, use in _held(value):
                source = sources[module.__name__] if name.startswith("_") else everywhere
                full = f"{module.__name__}.{name}"
                yield full, pattern, use or USES.get(full) or _use(name, source)


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.removeprefix("calve.").startswith(_LEFT_OUT):
            yield importlib.import_module(found.name)


def _held(value: object) -> Iterator[tuple[Pattern, str]]:
    """The patterns that a value is or holds, with the use that is known of it."""
    of = getattr(value, "__self__", None)
    if isinstance(value, re.Pattern):
        yield value, ""
    elif isinstance(of, re.Pattern):
        yield of, str(getattr(value, "__name__", ""))
    elif type(value) is dict or type(value) is tuple:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _held(each)


def _use(name: str, source: str) -> str:
    uses = set(re.findall(rf"\b{name}\.(\w+)\(", source))
    if not uses or uses & _SEARCHES:
        return "search"
    return "match" if "match" in uses else "fullmatch"


def run(size: int) -> None:
    for name, pattern, use in patterns():
        for repeated in REPEATED:
            print(f"{name} {use} {repeated!r}", flush=True)  # noqa: T201 - what the parent names
            text = repeated * (min(size, MOST.get(name, size)) // len(repeated))
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            # The last one may be a search over all of the rest.
            found = pattern.finditer(given) if use in _SEARCHES else [getattr(pattern, use)(given)]  # pyright: ignore
            deque(found, maxlen=0)


if __name__ == "__main__":
    run(int(sys.argv[1]))

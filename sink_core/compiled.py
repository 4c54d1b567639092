"""Loops over single bytes, written in Python and compiled by Numba: once for a machine, and kept.

A module of kernels compiles what `kernel` decorates when it is imported, or loads what was compiled before, and ends
with `kept(__name__)`. It is imported where `usable` says so and nowhere else: Numba itself takes a fifth of a second to
import, and a first compilation some seconds, which only much work or `calve spark prepare` is worth.
"""

# Numba has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

RECORDS = "calve.sink_core.kafka.gather"
JSON = "calve.sink_core.records.json.kernel"
AVRO = "calve.sink_core.records.avro.kernel"
PROTOBUF = "calve.sink_core.records.protobuf.kernel"
KERNELS = (RECORDS, JSON, AVRO, PROTOBUF)
"""Modules of kernels."""

_SOURCES = (
    "memory",
    "texts",
    "kafka/gather",
    "records/json/numbers",
    "records/json/kernel",
    "records/avro/kernel",
    "records/protobuf/kernel",
)
"""All that is compiled, by its path below this folder."""

WORTH_LOADING = 250_000
"""Records that take longer without kernels than these take to load."""

WORTH_COMPILING = 5_000_000
"""Records that take longer without kernels than these take to compile."""

_VARIABLE = "CALVE_COMPILED"
_OPTIONS: Mapping[str, Any] = {"nogil": True, "error_model": "numpy"}
F = TypeVar("F", bound=Callable[..., Any])


def directory() -> Path:
    """Where compiled kernels are kept: `CALVE_COMPILED`, else `~/.cache/calve/compiled`."""
    configured = os.environ.get(_VARIABLE)
    return Path(configured).expanduser().absolute() if configured else Path.home() / ".cache" / "calve" / "compiled"


@cache
def _folder() -> Path:
    """Those of these sources: Numba notices a change of a kernel's module, but not of one that it calls."""
    # Not wanted where few records are read.
    from importlib.metadata import version

    root = Path(__file__).parent
    found = hashlib.sha256(f"{sys.version} {version('numba')} {version('llvmlite')}".encode())
    for name in _SOURCES:
        found.update((root / f"{name}.py").read_bytes())
    return directory() / found.hexdigest()[:16]


def usable(module: str, records: int) -> bool:
    """Whether a read of so many records is to go through the kernels of `module`."""
    if module in sys.modules:
        return True
    if records < WORTH_LOADING and "numba" not in sys.modules:
        return False
    return lacks() is None and (records >= WORTH_COMPILING or is_kept(module))


@cache
def lacks() -> str | None:
    """Why there can be no kernels on this machine; None if there can."""
    if find_spec("numba") is None:
        return "numba is not installed"
    return None if os.access(_existing(directory()), os.W_OK) else f"{directory()} can't be written; set {_VARIABLE}"


def is_kept(module: str) -> bool:
    """Whether this machine has compiled the module, as it is now, before."""
    return _mark(module).exists()


def kept(module: str) -> None:
    """Note that the module, which is being imported, is compiled."""
    mark = _mark(module)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def prepare() -> Mapping[str, str]:
    """What was compiled just now, by module; a message for each that can't be. For images, and for whoever installs."""
    found = dict[str, str]()
    for module in KERNELS:
        if (why := lacks()) is None:
            was_there = is_kept(module)
            import_module(module)
            found[module] = "was there" if was_there else "compiled"
        else:
            found[module] = why
    return found


def kernel(signature: str) -> Callable[[F], F]:
    """A decorator: the function compiled for arguments of `signature`, as Numba writes types. It holds no GIL."""
    from numba import njit
    from numba.core import config

    settings: Any = config
    # Beside the modules, where Numba would write, not everybody may.
    settings.CACHE_DIR = settings.CACHE_DIR or str(_folder())
    compiled: Any = njit(signature, cache=True, **_OPTIONS)
    return compiled


def part(function: F) -> F:
    """The function as a part of kernels, which are compiled with it: by itself it is neither kept nor loaded."""
    from numba import njit

    compiled: Any = njit(function, **_OPTIONS)
    return compiled


def _mark(module: str) -> Path:
    return _folder() / f"{module}.kept"


def _existing(path: Path) -> Path:
    """The nearest folder above that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())

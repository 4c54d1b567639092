"""The names of all failpoints, as they stand in the code."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_REACHED = re.compile(r'\breach\("([a-z.-]+)"\)')
_SOURCES = [path.read_text() for package in ("sink_core", "spark_jobs") for path in (_ROOT / package).rglob("*.py")]

FAILPOINTS = sorted({name for source in _SOURCES for name in _REACHED.findall(source)})

MIRRORS = {
    *(
        name
        for name in FAILPOINTS
        if name.startswith(("copy.", "generation.", "groups.", "slot.", "topics.", "transaction."))
    ),
    "resolve.after-token",
}
"""Those that only mirrors reach."""

HUDI = {name for name in FAILPOINTS if name.startswith("hudi.")}
"""Those that only commits to Hudi tables reach."""

SOURCES = {name for name in FAILPOINTS if name.startswith("source.")}
"""Those that only sources reach, which reach most of a mirror's too."""

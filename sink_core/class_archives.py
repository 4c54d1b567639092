"""Where archives of parsed and verified Java classes are (JEP 350, application class-data sharing).

One fits one Java and one set of jars; Java ignores it where they differ, so that it is never needed and never wrong. It
lives and dies with the Python environment: `<sys.prefix>/share/calve`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(sys.prefix) / "share" / "calve"


def archive_path(name: str, java: Path, jars: Iterable[Path]) -> Path:
    """Where the archive of that name for this Java and these jars is, or would be."""
    facts = [f"{path}:{path.stat().st_mtime_ns if path.exists() else ''}" for path in (java.resolve(), *jars)]
    return FOLDER / f"{name}-{hashlib.sha256('|'.join(facts).encode()).hexdigest()[:12]}.jsa"

"""The pinned Spark 3.5 that row changes of Hudi tables need: there is a Hudi for it, and none for Spark 4 on Maven
Central. It stands beside the jars, out of reach of the Python environment: two Sparks can't be in one.

It appears complete by a rename, and never changes afterwards.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calve.sink_core.error_codes.hudi import NO_SPARK_35
from calve.sink_core.errors import Unreachable
from calve.sink_core.jars import jars_dir
from calve.sink_core.locks import exclusive

PYSPARK = "pyspark==3.5.9"
MEGABYTES = 320
"""To be fetched."""

_LOGGER = logging.getLogger("calve.hudi")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where it is, its size in bytes, and the seconds that fetching it took; None if it was there."""

    folder: Path
    size: int
    seconds: float | None


def spark_35_folder() -> Path:
    """Where it is, or would be: a folder for `PYTHONPATH`."""
    return jars_dir() / PYSPARK.replace("==", "-")


def spark_35_jars() -> list[Path]:
    """Its archives. Fetches them if needed, and says so in the log; raises Unreachable."""
    prepare(_LOGGER.warning)
    return sorted((spark_35_folder() / "pyspark" / "jars").glob("*.jar"))


def prepare(tell: Callable[[str], object]) -> Prepared:
    """Have it, fetched by pip if it isn't there. Raises Unreachable."""
    folder, seconds = spark_35_folder(), None
    if not folder.is_dir():
        with exclusive(jars_dir() / f".{folder.name}.lock"):
            if not folder.is_dir():
                tell(f"fetching {PYSPARK} for row changes of Hudi tables, {MEGABYTES} MB, once per machine")
                began = time.monotonic()
                _fetch(folder)
                seconds = time.monotonic() - began
                tell(f"{PYSPARK} is in {folder}, after {seconds:.0f} s")
    return Prepared(folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), seconds)


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--target", str(made), PYSPARK]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a command of ours
        if done.returncode:
            said = next(reversed((done.stderr or done.stdout).strip().splitlines()), f"exit code {done.returncode}")
            raise Unreachable(
                f"{PYSPARK} could not be installed for row changes of Hudi tables: {said}",
                hint="open the way to PyPI (PIP_INDEX_URL, HTTPS_PROXY); or have it there: "
                f"pip install --no-deps --target {folder} {PYSPARK}",
                code=NO_SPARK_35,
            )
        made.rename(folder)

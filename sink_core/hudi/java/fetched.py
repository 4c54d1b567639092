"""What commits to Hudi tables need of others, fetched once per machine: archives of Hudi's Java client; and for row
changes a Spark 3.5, as Maven Central has a Hudi for it and none for Spark 4.

That Spark stands beside the archives, out of reach of the Python environment: two Sparks can't be in one. It appears
complete by a rename, and never changes afterwards.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.jars import HUDI, fetched_once, jars_dir, resolve

PYSPARK = "pyspark==3.5.9"
PYSPARK_SHA256 = "ea27adc39ddac9413b8951e45aa748cbed6c785971b81386efc41938f6243d93"
"""Of its source distribution, the only one that there is."""

_PIP_DIFFERS = "DO NOT MATCH THE HASHES"

_CLIENT_MB, _SPARK_MB = 80, 320
_LOGGER = logging.getLogger("calve.hudi")

Tell = Callable[[str], object]
"""Is told what is fetched, before and after."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What it is, where it is, and the seconds that fetching it took; None if it was there."""

    name: str
    folder: Path
    seconds: float | None

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @property
    def text(self) -> str:
        how = "was there" if self.seconds is None else f"fetched in {self.seconds:,.0f} s"
        return f"{self.name}: {self.size / 1e6:,.0f} MB in {self.folder}, {how}"


def fetch_client(tell: Tell) -> Fetched:
    """Have the archives of Hudi's Java client. Raises Unreachable."""
    return _fetched("Hudi's Java client", _CLIENT_MB, HUDI.folder, lambda: resolve(HUDI), tell)


def fetch_spark(tell: Tell) -> Fetched:
    """Have the Spark that brings row changes in, by pip; its folder is one for `PYTHONPATH`. Raises Unreachable."""
    folder = jars_dir() / PYSPARK.replace("==", "-")
    name = f"{PYSPARK}, for row changes of Hudi tables"
    return _fetched(name, _SPARK_MB, folder, lambda: fetched_once(folder, partial(_install, folder)), tell)


def client_jars() -> list[Path]:
    """The archives of Hudi's client. Fetches them if needed, and says so in the log; raises Unreachable."""
    return _archives(fetch_client(_LOGGER.warning).folder)


def spark_jars() -> list[Path]:
    """As `client_jars`, of the Spark for row changes."""
    return _archives(fetch_spark(_LOGGER.warning).folder / "pyspark" / "jars")


def _archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _fetched(name: str, megabytes: int, folder: Path, fetch: Callable[[], object], tell: Tell) -> Fetched:
    seconds = None
    if not folder.is_dir():
        tell(f"fetching {name}: {megabytes} MB, once per machine")
        began = time.monotonic()
        fetch()
        seconds = time.monotonic() - began
    found = Fetched(name, folder, seconds)
    if seconds is not None:
        tell(found.text)
    return found


def _install(folder: Path, complete: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    (wanted := complete.with_name("requirements.txt")).write_text(f"{PYSPARK} --hash=sha256:{PYSPARK_SHA256}\n")
    command = [*pip, "--target", str(complete), "--require-hashes", "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if _PIP_DIFFERS in done.stderr:
        raise ConfigError(
            f"what pip was given as {PYSPARK} is not what Calve was made with",
            hint="nothing of it is used: see what the index or mirror that pip asks (PIP_INDEX_URL) answers with",
            code=Code.JARS_DIFFER,
        )
    if done.returncode:
        said = next(reversed((done.stderr or done.stdout).strip().splitlines()), f"exit code {done.returncode}")
        raise Unreachable(
            f"{PYSPARK} could not be installed for row changes of Hudi tables: {said}",
            hint="open the way to PyPI (PIP_INDEX_URL, HTTPS_PROXY); or have it there: "
            f"pip install --no-deps --target {folder} {PYSPARK}",
            code=Code.NO_SPARK_35,
        )

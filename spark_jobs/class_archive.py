"""The classes Spark's driver loads at each start, parsed and verified once (JEP 350, application class-data sharing).

Saves about four CPU-seconds of each start on one machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from calve.sink_core.class_archives import FOLDER, archive_path
from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import ConfigError
from calve.sink_core.jars import spark_jars


def archive() -> Path:
    """Where the archive for the Java, pyspark and jars in use is, or would be."""
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else None) or "java").resolve()
    return archive_path("spark", java, [*map(Path, pyspark.__path__), *spark_jars()])


def java_option() -> str:
    """What makes Java use the archive; empty if there is none."""
    found = archive()
    return f"-XX:SharedArchiveFile={found}" if found.is_file() else ""


def prepare(on_step: Callable[[str], None] = lambda _step: None) -> tuple[Path, bool]:
    """Write the archive if it isn't there; its path, and whether it was written now. Takes half a minute.

    For a process without a Spark session of its own. Raises ConfigError if Spark doesn't start, the environment is
    read-only or Java writes none.
    """
    target = archive()
    if target.is_file():
        return target, False
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for other in FOLDER.glob("spark-*.jsa"):
            other.unlink()
    except OSError as error:
        raise ConfigError(
            f"{FOLDER} can't be written: {error}",
            hint="run this as the environment's owner; without an archive each start of Spark just takes longer",
            code=Code.CLASS_ARCHIVE,
        ) from None
    unfinished = target.with_suffix(f".{os.getpid()}")
    try:
        _dump(unfinished, on_step)
        unfinished.rename(target)
    except FileNotFoundError:
        raise ConfigError(
            "Java wrote no class archive", hint="use OpenJDK 17 or newer", code=Code.CLASS_ARCHIVE
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)
    return target, True


def _dump(path: Path, on_step: Callable[[str], None]) -> None:

    from calve.spark_jobs.compat import gateway
    from calve.spark_jobs.engine import SparkEngine
    from calve.spark_jobs.session import JAVA_OPTIONS

    conf = {"spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={path}"}
    on_step("starting Spark")
    with SparkEngine(SparkSettings(master="local[1]", conf=conf)) as runner:
        runner.run(_nothing, 1)
        # Merges and distributed tables go by Spark's SQL.
        runner.session.range(1).collect()
        running = cast(Any, gateway())
    on_step("writing the archive")
    running.shutdown()
    # Spark's gateway ends when its standard input does, and writes the archive on its way out.
    running.proc.stdin.close()
    running.proc.wait()


def _nothing(_number: int) -> bytes:
    return b""

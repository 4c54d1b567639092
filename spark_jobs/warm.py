"""A warm Spark: a driver that outlives the runs on it, in a folder of its own, for the runs of one machine.

Its process, the keeper (`keeper.py`), holds the lock of the folder as long as it lives: there is never a second one.
Runs attach to its JVM; each cuts its jobs by a tag, and one that dies has its jobs cancelled by the keeper.

    spark.json      process, port and secret of the JVM, the settings it was started with; only its owner can read it
    settings.json   what to start it with: whoever finds it dead starts it again
    runs/           a file for each run that is attached
    used, stay      when somebody last wanted it; there if it is not to end by itself
    failed          there if the last start failed

`spark.json` goes with an orderly end. One that names a process which is gone tells of a death.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import calve
from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.references import resolve
from calve.sink_core.detached import Detached, launch, tail
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.timing import Deadline

START_S = 120.0
UNUSED_S = 900.0
"""One that Dagster started ends so long after the last run and the last tick that wanted it."""

FAILED_S = 300.0
"""So long Dagster does not try again after a start that failed."""

_LATE_S = 15.0
_POLL_S = 0.05
_children: list[int] = []


@dataclass(frozen=True, slots=True)
class WarmSpark:
    """The keeper's process and the way to its JVM, of port 0 while it starts.

    `identity` says which Spark it is: two of one identity are as good as each other.
    """

    folder: Path
    process: Detached
    secret: str = field(repr=False)
    identity: str
    application_id: str
    master: str
    ui: str

    @property
    def is_up(self) -> bool:
        """Whether runs can attach; it may have died since."""
        return self.process.port > 0

    @property
    def runs(self) -> list[str]:
        """Tags of the runs on it."""
        return sorted(file.name for file in runs_in(self.folder).iterdir()) if runs_in(self.folder).is_dir() else []

    def is_alive(self) -> bool:
        return self.process.process() is not None

    def write(self) -> None:
        """Write `spark.json`, readable by its owner alone from its first byte on."""
        state = {
            "pid": self.process.pid,
            "created": self.process.created,
            "port": self.process.port,
            "secret": self.secret,
            "identity": self.identity,
            "application_id": self.application_id,
            "master": self.master,
            "ui": self.ui,
        }
        _write_private(state_file(self.folder), json.dumps(state))


def recorded(folder: Path) -> WarmSpark | None:
    """The Spark that `spark.json` names, None without one; its process may be gone."""
    try:
        state = json.loads(state_file(folder).read_text())
    except FileNotFoundError:
        return None
    process = Detached(state.pop("pid"), state.pop("created"), state.pop("port"))
    return WarmSpark(folder, process, **state)


def running(folder: Path) -> WarmSpark | None:
    """The Spark of the folder if its process lives; it may still be starting."""
    spark = recorded(folder)
    return spark if spark is not None and spark.is_alive() else None


def folder_of(settings: SparkSettings) -> Path | None:
    """The folder where a warm Spark of these settings is, or would be; None where none is to be used. Raises
    ConfigError for a reference to a variable that is not set.
    """
    if settings.remote is not None or settings.warm in ("auto", "never"):
        return None
    return Path(resolve({"warm": settings.warm})["warm"]).absolute()


def find(settings: SparkSettings) -> WarmSpark | None:
    """The warm Spark that is there for these settings, waited for while it starts; one that died is started again.

    None where none was started, it was stopped, or it is of other settings or of another version. Raises Unreachable if
    it does not come up.
    """
    folder = folder_of(settings)
    spark = recorded(folder) if folder is not None else None
    if folder is None or spark is None or spark.identity != identity_of(settings):
        return None
    return _await_up(folder) if spark.is_alive() else start(folder, settings)


def ready(settings: SparkSettings) -> WarmSpark | None:
    """The warm Spark of these settings that runs could attach to now, None if there is none. Starts nothing."""
    folder = folder_of(settings)
    spark = running(folder) if folder is not None else None
    return spark if spark is not None and spark.is_up and spark.identity == identity_of(settings) else None


def start(folder: Path, settings: SparkSettings, *, unused_s: float | None = None) -> WarmSpark:
    """The warm Spark of the folder, once it has run a task: the running one, else a new one.

    `unused_s`: a new one ends so many seconds after its last use; None: as the last one there did, else never.
    Raises ConfigError if the running one has other settings, Unreachable if it dies or does not come up.
    """
    if (keeper := begin(folder, settings, unused_s=unused_s)) is not None:
        return _await_up(folder, keeper)
    spark = _await_up(folder)
    if spark.identity != identity_of(settings):
        raise ConfigError(
            f"the Spark in {folder} runs already, with other settings or another version than asked for",
            hint="stop it first with `calve spark stop`; runs that are on it are tried again",
            code=Code.RUNS_OTHERWISE,
        )
    return spark


def begin(folder: Path, settings: SparkSettings, *, unused_s: float | None = None) -> Detached | None:
    """The process of a keeper that was started, and may not be up yet; None if one lives.

    Of several at the same time one gets the folder's lock, the others end at once.
    """
    if running(folder) is not None:
        return None
    runs_in(folder).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    before = _settings_file(folder)
    if unused_s is None and before.is_file():
        unused_s = json.loads(before.read_text())["unused_s"]
    text = {"spark": settings.model_dump(mode="json", exclude_none=True), "unused_s": unused_s}
    _write_private(before, json.dumps(text))
    touch(folder)
    failed_file(folder).unlink(missing_ok=True)
    _reap()
    keeper = launch([sys.executable, "-m", "calve.spark_jobs.keeper", str(folder)], 0, log_file(folder))
    _children.append(keeper.pid)
    return keeper


def keep(settings: SparkSettings) -> str:
    """Have a warm Spark at hand without waiting for it; a line that says what was done, "" if all is as it should be.

    One of other settings or another version is ended once no run is on it.
    """
    folder = folder_of(settings)
    if folder is None:
        return ""
    touch(folder)
    spark = running(folder)
    if spark is None and _age_s(failed_file(folder)) < FAILED_S:
        return f"no warm Spark: its last start failed, see {log_file(folder)}; runs start their own"
    if spark is None:
        return f"starting a warm Spark in {folder}" if begin(folder, settings, unused_s=UNUSED_S) else ""
    if spark.is_up and spark.identity != identity_of(settings) and not spark.runs:
        stop(folder)
        return f"ended the warm Spark in {folder}, which has other settings or another version"
    return ""


def stop(folder: Path, *, timeout: float = 30.0) -> bool:
    """End the Spark of the folder, with the jobs on it, and wait until it is gone; True if there was one.

    It is asked with SIGTERM and, after `timeout` seconds, killed.
    """
    spark = running(folder)
    if spark is not None:
        spark.process.end(timeout)
    for file in (state_file(folder), stay_file(folder)):
        file.unlink(missing_ok=True)
    return spark is not None


def touch(folder: Path) -> None:
    """Note that somebody wants it."""
    with suppress(OSError):
        (folder / "used").touch()


@cache
def _code() -> tuple[str, float]:
    """The version of Calve and the time of its newest module: what a process has imported stays as it was."""
    packages = [Path(calve.__file__).with_name(name) for name in ("sink_core", "spark_jobs")]
    times = (file.stat().st_mtime for package in packages for file in package.rglob("*.py"))
    return version("calve"), max(times, default=0.0)


def identity_of(settings: SparkSettings) -> str:
    """The hash of all that makes one Spark differ from another: settings, interpreter, code."""
    known = {
        "master": settings.master,
        "memory": settings.driver_memory,
        "conf": resolve(settings.conf),
        "python": sys.executable,
        "code": _code(),
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _await_up(folder: Path, keeper: Detached | None = None) -> WarmSpark:
    """The Spark that comes up in the folder; `keeper` is the process that is to be its keeper."""
    deadline, late = Deadline.after(START_S), Deadline.after(_LATE_S)
    while True:
        spark = running(folder)
        if spark is not None and spark.is_up:
            return spark
        lives = spark is not None or (keeper is not None and keeper.process() is not None)
        # A keeper that came second has ended, and the first may not have written its file yet.
        ended = not lives and (late.passed or failed_file(folder).is_file())
        if ended or deadline.passed:
            what = "ended while starting" if ended else f"has not come up for {START_S:g} s"
            raise Unreachable(
                f"the warm Spark in {folder} {what}:\n{tail(log_file(folder))}",
                hint=f"see {log_file(folder)}; `warm: never` under `spark` in connections.yaml does without",
                code=Code.NOT_STARTED,
            )
        time.sleep(_POLL_S)


def unused_s(folder: Path) -> float:
    """Seconds since somebody wanted it."""
    return _age_s(folder / "used")


def _age_s(file: Path) -> float:
    """Seconds since a file was touched; infinite for none."""
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _reap() -> None:
    """Let go of keepers that have ended: whoever started one may live for months."""
    for pid in [*_children]:
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.remove(pid)


def _write_private(file: Path, text: str) -> None:
    descriptor, scratch = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
    with os.fdopen(descriptor, "w") as out:
        out.write(text + "\n")
    Path(scratch).rename(file)


def started_with(folder: Path) -> tuple[SparkSettings, float]:
    """The settings of `begin`, and the seconds without use after which it ends; infinite if it does not by itself."""
    text: dict[str, Any] = json.loads(_settings_file(folder).read_text())
    return SparkSettings.model_validate(text["spark"]), math.inf if text["unused_s"] is None else text["unused_s"]


def state_file(folder: Path) -> Path:
    return folder / "spark.json"


def failed_file(folder: Path) -> Path:
    return folder / "failed"


def stay_file(folder: Path) -> Path:
    return folder / "stay"


def runs_in(folder: Path) -> Path:
    return folder / "runs"


def log_file(folder: Path) -> Path:
    return folder / "spark.log"


def _settings_file(folder: Path) -> Path:
    return folder / "settings.json"

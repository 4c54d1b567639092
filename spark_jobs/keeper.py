"""The process of a warm Spark: it starts the driver's JVM, which ends with it, and looks after the runs on it.

    python -m calve.spark_jobs.keeper FOLDER

It ends by SIGTERM, with its JVM, or once nobody has used it for as long as it was started for.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from calve.spark_jobs import warm
from calve.spark_jobs.attached import is_gone
from calve.spark_jobs.compat import gateway, heap_in_use, metrics_of

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOK_S = 0.5
FULL = 0.75
"""The share of the heap in use from which a warm Spark that nobody uses makes place for a new one."""

CONF = {
    # Each task is forked anew from a daemon that has imported what it needs: no run finds modules, environment or
    # memory of another.
    "spark.python.worker.reuse": "false",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    # Whoever reaches the page may look; ending jobs is for Calve.
    "spark.ui.killEnabled": "false",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "10000",
    "spark.app.name": "calve warm spark",
}
"""Settings of a warm Spark, below those of the user."""


def main(folder: Path) -> int:
    """Be the keeper of `folder`; 0 also if there is one already."""
    with (folder / "keeper.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        _keep(folder)
    return 0


def _keep(folder: Path) -> None:
    from calve.sink_core.detached import process_of
    from calve.spark_jobs.session import start

    asked = Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings, unused_s = warm.started_with(folder)
    identity = warm.identity_of(settings)
    here = process_of(os.getpid())
    spark = warm.WarmSpark(folder, here, "", identity, "", settings.master or "", "")
    spark.write()
    for file in warm.runs_in(folder).iterdir():
        if is_gone(file.name):
            file.unlink(missing_ok=True)
    scratch = folder / "local"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    # Its page, and all else that listens, is for this machine alone.
    if (settings.master or "").startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = settings.model_copy(update={"conf": {**CONF, **settings.conf}, "warm": "never"})
    try:
        running = start(settings, scratch=scratch)
    except BaseException:
        # No run is to try that again; whoever keeps one up waits a while.
        warm.state_file(folder).unlink(missing_ok=True)
        warm.failed_file(folder).touch()
        raise
    warm.failed_file(folder).unlink(missing_ok=True)
    assert running.context is not None
    context = running.context
    # Until its first task it has loaded few of the classes that each run needs, and has no daemon of Python.
    context.parallelize([0], 1).map(_nothing).collect()
    # Two runs that come first at the same time would make two.
    metrics_of(context)
    parameters = cast(Any, gateway()).gateway_parameters
    replace(
        spark,
        process=replace(here, port=int(parameters.port)),
        secret=str(parameters.auth_token),
        application_id=context.applicationId,
        ui=context.uiWebUrl or "",
    ).write()
    try:
        if _look_after(folder, context, asked, unused_s):
            # An orderly end: nobody is to start it again.
            warm.state_file(folder).unlink(missing_ok=True)
    finally:
        running.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def _look_after(folder: Path, context: SparkContext, asked: Event, unused_s: float) -> bool:
    """Cancel jobs of runs that are gone, until there is a reason to end; False if the next run is to start another:
    the JVM has died, or is full.
    """
    while not asked.wait(LOOK_S):
        if cast(Any, gateway()).proc.poll() is not None:
            return False
        runs = list(warm.runs_in(folder).iterdir())
        for file in runs:
            if is_gone(file.name):
                context.cancelJobsWithTag(file.name)
                file.unlink(missing_ok=True)
        if not runs and warm.unused_s(folder) > unused_s and not warm.stay_file(folder).exists():
            return True
        # Each run leaves some kilobytes behind, one that was killed all that it held.
        if not runs and heap_in_use(context) > FULL:
            return False
    return True


def _nothing(number: int) -> int:
    return number


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

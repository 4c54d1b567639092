"""Spark's Python daemon with the imports of a task done before it forks its workers.

Each worker would otherwise import them for itself, at more than a CPU-second each. What a worker does between two tasks
is also taken from it. A job of one task on a session that is up takes 76 CPU-ms with both, of 60 jobs in each of five
runs of either kind, and a worker 2 of these:

- After a task Python looks for garbage, among all that was imported. What is frozen is not looked at. Without it a job
  takes 179 CPU-ms.
- Before a task pyspark has Python forget what it knows of the module path, and of each archive on it Python then reads
  the list of files anew, once for each package that was imported from there: Spark's own are in archives. Those don't
  change under a worker; what `addPyFile` adds are archives of other names. Without it a job takes 188 CPU-ms.

A cold run has one such job, and shows no difference.
"""

from __future__ import annotations

import gc
from importlib import import_module
from zipimport import zipimporter

from pyspark.daemon import manager

from calve.sink_core import imports

NEEDED = (
    "calve.spark_jobs.tasks",
    "calve.spark_jobs.writing",
    "calve.sink_core.iceberg.format.target",
    "calve.sink_core.records.json.format",
    "calve.sink_core.mirror.copy",
    "calve.sink_core.source.send",
    "numpy.ma",
)
"""What tasks are unpickled from, and what the first record of one would import."""

with imports.for_good():
    for module in NEEDED:
        import_module(module)


def get_ready() -> None:
    """What workers have from the daemon that forks them."""
    zipimporter.invalidate_caches = _keep
    gc.freeze()


def _keep(self: zipimporter) -> None:
    """In the place of reading the list of files anew."""


if __name__ == "__main__":
    get_ready()
    manager()

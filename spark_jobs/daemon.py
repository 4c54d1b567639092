"""Spark's Python daemon with the imports of a task done before it forks its workers.

Each worker would otherwise import them for itself, at more than a CPU-second each. And after each task a worker has
Python look for garbage: among all that was imported that takes a tenth of a second, for which the next task waits. What
is frozen is not looked at.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

import_module("spark_jobs.task")

if __name__ == "__main__":
    gc.freeze()
    manager()

"""Spark's Python daemon with the imports of a task done before it forks its workers.

Each worker would otherwise import them for itself, at more than a CPU-second each.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

import_module("spark_jobs.task")

if __name__ == "__main__":
    manager()

"""Spark's Python daemon with what tasks import already imported, so that the workers it forks need not.

Spark Connect starts a daemon for each session, which is to say for each run.
"""

from __future__ import annotations

from pyspark import daemon

from spark_jobs import task

PRELOADED = task.__name__

if __name__ == "__main__":
    daemon.manager()

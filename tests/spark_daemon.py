"""The daemon of each session of a warm Spark, ended sooner than the product's: a suite has hundreds of sessions."""

from __future__ import annotations

from calve.spark_jobs import session_daemon

UNUSED_S = 1.0
"""Spark starts another if one is missing that it needs after all."""

if __name__ == "__main__":
    session_daemon.UNUSED_S = UNUSED_S
    session_daemon.main()

"""Where the time of a cold start goes: `python -m bench.start_steps FILE` prints seconds by step.

It does what `calve run FILE` does, with a clock. What it needs is imported as there, step by step.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil


class _Clock:
    """Wall seconds since the process began, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._doing, self._since = "Python's start", psutil.Process().create_time()

    def begins(self, step: str) -> None:
        now = time.time()
        self.seconds[self._doing] = round(self.seconds.get(self._doing, 0.0) + now - self._since, 2)
        self._doing, self._since = step, now


def steps(file: Path) -> dict[str, float]:
    """What `calve run FILE` does, with a clock."""
    clock = _Clock()
    clock.begins("imports")
    from calve.sink_core import imports
    from calve.sink_core.config.load import load

    with imports.for_good():
        from calve.sink_core.sink.loop.session import Session
        from calve.sink_core.sink.run import run_pipeline
        from calve.spark_jobs.engine import SparkEngine

    class Timed(SparkEngine):
        @property
        def _spark(self) -> Any:
            if self._started is None:
                clock.begins("Spark's start")
                _ = super()._spark
                clock.begins("Spark's first job")
            return super()._spark

        def write(self, spec: Any, tasks: Any) -> Any:
            results = super().write(spec, tasks)
            clock.begins("ledger and manifests")
            return results

    clock.begins("connecting")
    pipeline = load(file)
    with Timed(pipeline.spark) as engine, Session.open(pipeline, engine=engine) as session:
        names = {"start": "pipeline and tables", "write": "tables loaded", "end": "Spark's end"}
        run_pipeline(session, on_progress=lambda step: clock.begins(names.get(step.phase, step.phase)))
    clock.begins("exit")
    return clock.seconds


if __name__ == "__main__":
    print(json.dumps(steps(Path(sys.argv[1]))))

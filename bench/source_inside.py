"""A source's run in a process that has started: `python -m bench.source_inside FILE` prints its `Measured`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.measure import Measured, Meter
from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.run import run_source


def send(file: Path) -> Measured:
    """One run, its first contact with cluster and database included."""
    meter = Meter()
    with SourcePlane(load_as(SourcePipeline, file)) as plane:
        report = run_source(plane)
    return meter.read(report.records)


if __name__ == "__main__":
    print(json.dumps(asdict(send(Path(sys.argv[1])))))

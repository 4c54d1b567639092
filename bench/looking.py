"""A look at a pipeline by a process that does nothing else: `python -m bench.looking status|verify PIPELINE.yaml`.

The last line says its seconds, without the process's start, and the most memory that the process ever had, in MiB, of
which 200 are libraries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import ROOT
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.status import status
from calve.sink_core.sink.verify.proof import verify


def looked(look: str, pipeline: Path) -> dict[str, float]:
    """What a process measured of itself."""
    command = [sys.executable, "-m", "bench.looking", look, str(pipeline)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own
    return json.loads(done.stdout.splitlines()[-1])


def _look(look: str, pipeline: SinkPipeline) -> None:
    with Session.open(pipeline) as session:
        if look == "status":
            session.read_only()
            status(session)
        else:
            proof = verify(session, deep=False)
            assert proof.proven, proof.violations


def main(look: str, file: str) -> None:
    pipeline, began = load(Path(file)), time.perf_counter()
    _look(look, pipeline)
    seconds = time.perf_counter() - began
    # Not `ru_maxrss`, which remembers the parent's memory across the fork.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    print(json.dumps({"s": round(seconds, 3), "memory_mib": int(peak[1]) // 2**10}))


if __name__ == "__main__":
    main(*sys.argv[1:])

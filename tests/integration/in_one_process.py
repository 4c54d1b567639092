"""Runs a pipeline in a process of its own, tasks included, and prints that process's peak memory in MB.

An error of Calve's goes to stderr, and the process ends with its exit code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from calve.sink_core.config.load import load
from calve.sink_core.errors import CalveError
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline


def main(file: str) -> None:
    """`file` is the pipeline's."""
    try:
        with Session.open(load(Path(file))) as session:
            run_pipeline(session)
    except CalveError as error:
        print(error, file=sys.stderr)  # noqa: T201 - as above
        sys.exit(error.exit_code)
    # Not `ru_maxrss`, which remembers the parent's memory across the fork.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    print(int(peak[1]) / 1024)  # noqa: T201 - the result


if __name__ == "__main__":
    main(sys.argv[1])

"""What a process under test runs: `calve` itself, with what its spinner would show as lines on stdout.

`python -m tests.e2e.faults.child run FILE` is the cold form; for the others `processes.Launcher` forks to `main`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.status import Status

MARK = "@"
"""Begins a line of progress, `@phase: message`."""

IN_DAGSTER = "in-dagster"
"""Begins arguments that are no command's: a folder of Dagster's, a pipeline file, and the stage whose job is to run."""


def main(args: list[str]) -> None:
    """Run the console script's entry point, or a Dagster job. Ends in SystemExit with its exit code."""
    if args[0] == IN_DAGSTER:
        sys.exit(_job(*args[1:]))
    from calve.orchestration.cli.main import app

    # The spinner is drawn a few times a second and on terminals only; here each of its texts counts.
    Status.update = _tell  # pyright: ignore[reportAttributeAccessIssue] (it takes what callers give)
    sys.argv = ["calve", *args]
    app()


def _job(home: str, file: str, stage: str) -> int:
    """Run a stage's job as its editor opens; 0 if it ends well."""
    from dagster import DagsterInstance

    from calve.sink_core.config.load import load
    from tests.dagster_runs import run_of

    # Of a deployment without limits of pools: several at once are what is tested.
    with DagsterInstance.local_temp(home) as instance:
        return 0 if run_of(load(Path(file)), instance, stage).result.success else 1


def _tell(_status: Status, status: object = None, **_: object) -> None:
    if status is not None:
        print(f"{MARK}{status}", flush=True)  # noqa: T201 - read by the harness


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a process under test runs: `calve` itself, with what its spinner would show as lines on stdout.

`python -m tests.e2e.faults.child run FILE` is the cold form; for the others `processes.Launcher` forks to `main`.
"""

from __future__ import annotations

import sys

from rich.status import Status

MARK = "@"
"""Begins a line of progress, `@phase: message`."""


def main(args: list[str]) -> None:
    """Run the console script's entry point. Ends in SystemExit with its exit code."""
    from calve.orchestration.cli.main import app

    # The spinner is drawn a few times a second and on terminals only; here each of its texts counts.
    Status.update = _tell  # pyright: ignore[reportAttributeAccessIssue] (it takes what callers give)
    sys.argv = ["calve", *args]
    app()


def _tell(_status: Status, status: object = None, **_: object) -> None:
    if status is not None:
        print(f"{MARK}{status}", flush=True)  # noqa: T201 - read by the harness


if __name__ == "__main__":
    main(sys.argv[1:])

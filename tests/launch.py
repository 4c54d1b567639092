"""The command line as tests give it: in this process, in one forked for it, or from a new interpreter.

`calve` is the cheapest. `forked` is for what only a process of its own shows: a crash, a kill, two at once, what it
leaves in its folders. It comes from a server that has imported everything and opened nothing (`multiprocessing`'s fork
server), which saves the seconds of import. `cold` is for those whose subject is the console script itself.

All are the command as a user gives it; pipelines of tests are small, so that their tasks run in the process.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from calve.orchestration.cli.main import app

if TYPE_CHECKING:
    pass

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["tests.preload"])
CALVE = Path(sys.executable).with_name("calve")
"""The console script."""

END_S = 300.0
"""How long a command may take."""

Done = subprocess.CompletedProcess[str]
"""Exit code, negative for a signal, and what was written to stdout and stderr."""


def calve(*arguments: object, **environment: str) -> Done:
    """Give a command in this process. What the command doesn't catch is raised here."""
    given = list(map(str, arguments))
    result = CliRunner().invoke(app, given, env=environment, catch_exceptions=False, prog_name="calve")
    # The runner keeps the frames of a command that failed, and with them its clients.
    failed = result.exception
    while failed is not None:
        traceback.clear_frames(failed.__traceback__)
        failed = failed.__context__
    return Done(given, result.exit_code, result.stdout, result.stderr)


def forked(*arguments: object, cwd: Path | None = None, **environment: str) -> Done:
    """Give a command in a process that is forked for it, and wait for its end."""
    return started(*arguments, cwd=cwd, **environment).done()


def cold(*arguments: object, cwd: Path | None = None, **environment: str) -> Done:
    """Give a command by the console script, from a new interpreter."""
    return subprocess.run(
        [str(CALVE), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


def demo(folder: Path, *command: str, **environment: str) -> Done:
    """Run a demo in a folder of its own as its reader does, from the clone."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "CALVE_DEMO_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def printed(done: Done) -> str:
    """What a command printed that ended well."""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True, slots=True)
class Running:
    """A command that goes on in a process of its own."""

    arguments: list[str]
    process: BaseProcess
    files: tempfile.TemporaryDirectory[str]

    def done(self) -> Done:
        """Wait for its end."""
        with self.files as folder:
            self.process.join(END_S)
            code = self.process.exitcode
            if code is None:
                self.process.kill()
                self.process.join()
            said = [(Path(folder) / name).read_text() for name in ("stdout", "stderr")]
            assert code is not None, f"{self.arguments} has not ended in {END_S:.0f} s: {said}"
            return Done(self.arguments, code, *said)


def started(*arguments: object, cwd: Path | None = None, **environment: str) -> Running:
    """Start a command in a process that is forked for it."""
    given = list(map(str, arguments))
    files = tempfile.TemporaryDirectory(prefix="calve-test-")
    its_environment = {**os.environ, **environment}
    process = FORK.Process(target=_command, args=(given, its_environment, cwd or Path.cwd(), Path(files.name)))
    process.start()
    return Running(given, process, files)


def _command(arguments: list[str], environment: Mapping[str, str], cwd: Path, files: Path) -> None:
    """What the forked process does. Its environment and folder are those of the fork server until here."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    tempfile.tempdir = None
    flags = os.O_WRONLY | os.O_CREAT
    begin(os.open(files / "stdout", flags, 0o600), os.open(files / "stderr", flags, 0o600))
    app(arguments, prog_name="calve")


def begin(stdout: int, stderr: int) -> None:
    """Give a forked process a session of its own, and these open files as its streams."""
    os.setsid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), line_buffering=True)

"""Named places between two effects where a test can kill or pause the process.

Off unless the environment variable `CALVE_FAILPOINT` is set to `NAME=ACTION`, with ACTION one of `kill` (SIGKILL),
`stop` (SIGSTOP, until somebody sends SIGCONT) or `raise`; `NAME=ACTION@N` acts at the N-th visit only, and
`NAME=ACTION:FILE` in the one process that makes the file, which gets its pid. `docs/design.md` has a row for each name.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

VARIABLE = "CALVE_FAILPOINT"
_visits: dict[str, int] = {}


class FailpointReached(RuntimeError):
    """Raised by the action `raise`."""


def reach(name: str) -> None:
    """Act if `CALVE_FAILPOINT` names this place."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return
    wanted, _, action = setting.partition("=")
    if wanted != name:
        return
    action, _, once = action.partition(":")
    action, _, visit = action.partition("@")
    _visits[name] = _visits.get(name, 0) + 1
    if visit and _visits[name] != int(visit):
        return
    if once and not _first(Path(once)):
        return
    if action == "raise":
        raise FailpointReached(name)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])


def _first(file: Path) -> bool:
    """Whether this process makes the file."""
    try:
        with file.open("x") as made:
            made.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True

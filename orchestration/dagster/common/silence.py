"""How long runs have given no sign of life (`common/signs.py`). Pure: what was seen and the clock in, silences out.

A run in progress whose status and sign stay the same is silent. How long, is counted by the clock of whoever looks, and
by no other: from look to look, so that a look that came late, a machine that slept or a clock that was set counts as no
more than `MOST_S`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster import DagsterRunStatus

MOST_S = 15.0
"""What the time between two looks counts for at most; a sensor looks every 5 s."""

LIMITS_S = {
    DagsterRunStatus.STARTED: 45.0,
    DagsterRunStatus.CANCELING: 45.0,
    DagsterRunStatus.STARTING: 180.0,
    DagsterRunStatus.NOT_STARTED: 180.0,
}
"""By status. A run that is STARTED misses four signs. One that waits in the queue may do so for ever."""

IMPORTED_S = 90.0
"""For a process of the code server, which has no image to pull, to start a run."""


@dataclass(frozen=True, slots=True)
class Silence:
    """`mark` is what stayed the same for `seconds`."""

    mark: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Silences:
    """Of the runs in progress at the last look, which was at `at_s` of the looking host's clock."""

    at_s: float = 0.0
    of: Mapping[str, Silence] = field(default_factory=dict[str, Silence])

    def after(self, marks: Mapping[str, str], now_s: float) -> Silences:
        """What the next look makes of them; a run that is not in progress any more is forgotten."""
        passed_s = min(MOST_S, max(0.0, now_s - self.at_s))
        silent = dict[str, Silence]()
        for run_id, mark in marks.items():
            before = self.of.get(run_id)
            stays = before is not None and before.mark == mark
            silent[run_id] = Silence(mark, before.seconds + passed_s) if before and stays else Silence(mark)
        return Silences(now_s, silent)


def limit_s(status: DagsterRunStatus, *, by_code_server: bool) -> float:
    """How long a run may be silent. Its process is one of the code server's with Dagster's default launcher."""
    return min(LIMITS_S[status], IMPORTED_S) if by_code_server else LIMITS_S[status]

"""The rules of commits to Hudi tables switched off, and the promise that each breaks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from calve.sink_core.rules import ALL, Rules
from tests.simulation.hudi.timeline import Fault
from tests.simulation.promises import Promise


@dataclass(frozen=True, slots=True)
class HudiRule:
    """Switches of `Rules` that are off, or what others do in the place of a rule; and the promise that this breaks."""

    mixture: str
    breaks: Promise
    off: tuple[str, ...] = ()
    faults: Collection[Fault] = ()

    @property
    def rules(self) -> Rules:
        return replace(ALL, **dict.fromkeys(self.off, False))


HUDI_CASES = {
    "the table is looked at in Hudi's lock": HudiRule(
        "lost locks", Promise.COMMITTED_ONCE, ("completion_compares_the_head",)
    ),
    "the table of row changes is looked at in Hudi's lock": HudiRule(
        "changes, lost locks", Promise.NOTHING_OVERWRITTEN, ("completion_compares_the_head",)
    ),
    "row changes come after all instants": HudiRule("changes", Promise.PROGRESS, ("changes_come_after_all_instants",)),
    "staged files stay until their commit is reported": HudiRule(
        "strangers", Promise.PROGRESS, ("staged_files_wait_for_the_report",)
    ),
    "the lock belongs to the JVM": HudiRule("commits", Promise.COMMITTED_ONCE, faults=[Fault.LOCK_OF_PYTHON]),
    "range jobs have instants of their own": HudiRule("strangers", Promise.PROGRESS, faults=[Fault.ONE_CHAIN]),
    "instants rise whatever the clock says": HudiRule("strangers", Promise.PROGRESS, faults=[Fault.CLOCK_ALONE]),
}

"""Instants of a Hudi table's commits: which ones are given, and when they may be used."""

from __future__ import annotations

import time

from calve.sink_core.codes import Code
from calve.sink_core.errors import TableUnusable, Unreachable
from calve.sink_core.hudi.files.timeline import instant_ms, instant_text
from calve.sink_core.hudi.java.client import action_of, table_type_of
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.tables.instants import MOST_AHEAD_S, next_instant


def own_instant(table: HudiTable) -> str:
    """One for a commit without a batch, which the timeline has not and no batch will have."""
    last = _last(table)
    return instant_text(next_instant(instant_ms(last) if last else 0, time.time_ns() // 1_000_000, "table"))


def _last(table: HudiTable) -> str:
    return max((each.requested for each in table.timeline.instants), default="")


def wait_for(instant: str, name: str) -> None:
    """Return once it is past: Hudi loses updates to files of an instant in the future, and says nothing. Raises
    Unreachable for one that is far ahead.
    """
    if not _comes(instant):
        raise Unreachable(
            f"{name}: a batch's instant is {instant}, ahead of this machine's clock by more than {MOST_AHEAD_S} s",
            hint="set the clocks of both machines by NTP",
            code=Code.CLOCK_BEHIND,
        )


def wait_past(table: HudiTable) -> None:
    """Return once all instants of the table are past: Hudi leaves out changes to files of later ones, and says nothing.
    Raises Unreachable for one that is far ahead.
    """
    last = _last(table)
    if last and not _comes(last):
        raise Unreachable(
            f"{table.name}: its timeline has the instant {last}, ahead of this machine's clock by more than "
            f"{MOST_AHEAD_S} s",
            hint="set the clocks of all that write to it by NTP; row changes are brought in once the instant is past",
            code=Code.INSTANT_AHEAD,
        )


def _comes(instant: str) -> bool:
    """Whether it is past, if need be after a wait."""
    ahead_s = instant_ms(instant) / 1_000 - time.time()
    if 0 < ahead_s <= MOST_AHEAD_S:
        time.sleep(ahead_s)
    return ahead_s <= MOST_AHEAD_S


def check_free(table: HudiTable, instant: str) -> None:
    """Raise TableUnusable if the timeline has anything at the instant but what a former try of ours has opened."""
    # The name of an inflight commit leaves its action out.
    ours = (action_of(table_type_of(table.properties)), "commit")
    others = [each for each in table.timeline.at(instant) if each.completed or each.action not in ours]
    if others:
        raise TableUnusable(
            f"{table.name}: the instant {instant} of a published batch is that of {others[0].path.name}, which another "
            "writer has made",
            hint="have that writer roll it back, if it is pending",
            code=Code.INSTANT_TAKEN,
        )

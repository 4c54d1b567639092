"""Saying that a batch or a range job begins: `START_COMMIT`, and what its append tells: the broker's time, and by that
the batch's instant.

Of an instant Hudi asks that it is not in the future where it is committed, so no other clock than the broker's counts:
a host's may be a day ahead for a minute, and every later instant had to be later still. An instant counts for those
after it once it is published, as only then a table may get it. Two batches that are planned on the same state may have
the same; one of them is published.

Crash points (docs/design.md has the whole table):

    plan.after-start-commit    a START_COMMIT without files: shown by `status` as outstanding, nothing else; so it is if
                               this dies before it says that it gives way to a clock
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from calve.sink_core.codes import Code
from calve.sink_core.control.events import BatchAbandoned
from calve.sink_core.errors import Unreachable
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.instants import MOST_AHEAD_S, Chain, next_instant
from calve.sink_core.tables.log.events import StartCommit


@dataclass(frozen=True, slots=True)
class Announced:
    """The broker's clock when it took the announcement, -1 where the control topic keeps CreateTime, and the instant,
    in milliseconds.
    """

    broker_time_ms: int
    instant_ms: int


def announce(session: Session, batch_id: str, predecessor: str, chain: Chain) -> Announced:
    """Say that a batch planned on `predecessor` begins, before its first file exists.

    Raises Unreachable where the broker's clock is far ahead of this host's and a table is to get the instant: nobody
    could commit it before that time has come.
    """
    log = session.log
    started = log.append(
        StartCommit(
            pipeline_id=session.pipeline_id,
            batch_id=batch_id,
            predecessor=predecessor,
            file_prefix=f"calve-{batch_id}",
            config_fingerprint=session.pipeline.config_fingerprint,
        )
    )
    now_ms = time.time_ns() // 1_000_000
    ahead_s = (started.broker_time_ms - now_ms) / 1000
    if ahead_s > MOST_AHEAD_S and session.pipeline.has_timelines:
        log.append(BatchAbandoned(pipeline_id=session.pipeline_id, batch_id=batch_id))
        raise Unreachable(
            f"the broker's clock is {ahead_s:,.0f} s ahead of this machine's; at most {MOST_AHEAD_S} s may be for Hudi "
            "tables",
            hint="set the clocks of both machines by NTP; the next run goes on once they agree",
            code=Code.CLOCKS_APART,
        )
    at_ms = started.broker_time_ms if started.broker_time_ms >= 0 else now_ms
    return Announced(started.broker_time_ms, next_instant(log.state.instant_ms, at_ms, chain))

"""What blocks a reader of committed records: topics and partitions that give no answer, and open transactions, whose
records and all behind them it does not see.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka.admin import AdminClient

from calve.sink_core.control.status import Blocker
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S, Settings
from calve.sink_core.kafka.pending import first_timestamps
from calve.sink_core.kafka.source import Silent, end_offsets, high_watermarks
from calve.sink_core.offsets import Offsets, TopicPartition

OPEN_S, STILL_S, READ_S = 10.0, 1.0, 5.0
"""A transaction that has been open for so long is worth a word, if it is open so much later still; the most that it
takes to find out.
"""


def silent_ones(silent: Silent, since_ms: Mapping[str, int]) -> Iterator[Blocker]:
    """What gives no answer; `since_ms` by name, as far as it is known."""
    for name, error in silent.by_name.items():
        yield Blocker.of(name, error, since_ms.get(name))


def open_transactions(admin: AdminClient, settings: Settings, ends: Offsets) -> tuple[Blocker, ...]:
    """The partitions that have an open transaction, oldest first. `ends` are their LSOs.

    The lag of such a partition is 0 once everything before the transaction is read, however much lies behind it. The
    time of its first record tells how long it has been open, by the producer's clock unless the topic has the broker's.
    One question to each leader where nothing is open. What gives no answer by now is left out. Raises Unreachable.
    """
    highs = high_watermarks(admin, ends, timeout_s=ADMIN_TIMEOUT_S, silent=Silent())
    began = _open(admin, {at: high for at, high in highs.items() if high > ends[at]})
    times = first_timestamps(settings, began, timeout_s=READ_S, uncommitted=True)
    latest_ms = (time.time() - OPEN_S) * 1000
    old = {at: highs[at] for at in began if times.get(at, 0) <= latest_ms}
    if old:
        time.sleep(STILL_S)
        now = _open(admin, old)
        old = {at: high for at, high in old.items() if now.get(at) == began[at]}
    return tuple(
        Blocker(
            str(at),
            f"{old[at] - began[at]:,} offsets from {began[at]:,} on are in an open transaction or behind one",
            "end its producer, or abort it: kafka-transactions.sh find-hanging, abort",
            times.get(at),
        )
        for at in sorted(old, key=lambda at: times.get(at, 0))
    )


def _open(admin: AdminClient, highs: Offsets) -> dict[TopicPartition, int]:
    """The LSO of each partition that has a transaction open: asked for after its end, below which it is then."""
    stable = end_offsets(admin, highs, timeout_s=ADMIN_TIMEOUT_S, silent=Silent())
    return {at: lso for at, lso in stable.items() if lso < highs[at]}

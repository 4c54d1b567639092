"""What blocks a reader of committed records: open transactions, whose records and all behind them it does not see."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient

from calve.sink_core.control.status import Blocker
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S, Settings
from calve.sink_core.kafka.pending import first_timestamps
from calve.sink_core.kafka.source import high_watermarks
from calve.sink_core.offsets import Offsets

OPEN_S, READ_S = 10.0, 5.0
"""A transaction that has been open for so long is worth a word; the most that it takes to find out."""


def open_transactions(admin: AdminClient, settings: Settings, ends: Offsets) -> tuple[Blocker, ...]:
    """The partitions that have an open transaction, oldest first. `ends` are their LSOs.

    The lag of such a partition is 0 once everything before the transaction is read, however much lies behind it. Only
    the time of its first record tells how long it has been open. Raises Unreachable.
    """
    highs = high_watermarks(admin, ends, timeout_s=ADMIN_TIMEOUT_S)
    hidden = {at: high - ends[at] for at, high in highs.items() if high > ends[at]}
    began = first_timestamps(settings, {at: ends[at] for at in hidden}, timeout_s=READ_S, uncommitted=True)
    latest_ms = (time.time() - OPEN_S) * 1000
    return tuple(
        Blocker(
            str(at),
            f"{hidden[at]:,} offsets from {ends[at]:,} on are in an open transaction or behind one",
            "end its producer, or abort it: kafka-transactions.sh find-hanging, abort",
            since_ms,
        )
        for at, since_ms in sorted(began.items(), key=lambda item: item[1])
        if since_ms <= latest_ms
    )

"""What a record carries to the target: what librdkafka can't carry is found here, for copying and for proving alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from confluent_kafka import Message

from calve.sink_core.kafka.messages import Messages
from calve.sink_core.mirror.digest import Headers

EARLIEST_MS = 1
"""What becomes of timestamp 0, which librdkafka takes for "now"."""

UNREADABLE = (UnicodeDecodeError, SystemError)
"""What confluent_kafka raises for a header whose name is not UTF-8."""

Uncarriable = Callable[[Message, str, Exception | None], None]
"""Told of a record that can't be carried as it is, in which respect, and by what that showed. May raise."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Columns of n records, as they are sent."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps_ms: Sequence[int]
    headers: Sequence[Headers]


def carried(messages: Messages, uncarriable: Uncarriable) -> Carried:
    """The columns of `messages`."""
    stated = messages.timestamps_ms
    if (stated < 0).any():
        # Such as the columns leave out, which are copied as they are.
        stated = np.array([moment for _, moment in map(Message.timestamp, messages.records)], np.int64)
    for place in np.flatnonzero(stated == 0).tolist():
        uncarriable(messages.records[place], "timestamp 0, which the client takes for now", None)
    times = np.where(stated == 0, EARLIEST_MS, stated).tolist()
    return Carried(messages.keys, messages.values, times, _headers(messages.records, uncarriable))


def _headers(records: Sequence[Message], uncarriable: Uncarriable) -> Sequence[Headers]:
    found: list[Headers] = []
    left = iter(records)
    while len(found) < len(records):
        try:
            # Asked once each: a message that has raised answers the next time with a list that crashes its reader.
            found.extend(cast(Iterator[Headers], map(Message.headers, left)))
        except UNREADABLE as error:
            uncarriable(records[len(found)], "a header whose name is not UTF-8", error)
            found.append(None)
    return found

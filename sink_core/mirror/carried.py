"""What a record carries to the target: what librdkafka can't carry is found here, for copying and for proving alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from calve.sink_core.kafka.messages import Messages, UnreadableHeaders
from calve.sink_core.mirror.digest import Headers

EARLIEST_MS = 1
"""What becomes of timestamp 0, which librdkafka takes for "now"."""

Uncarriable = Callable[[int, str, Exception | None], None]
"""Told the offset of a record that can't be carried as it is, in which respect, and by what that showed. May raise."""


@dataclass(frozen=True, slots=True)
class Carried:
    """Columns of n records, as they are sent."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps_ms: Sequence[int]
    headers: Sequence[Headers]


def carried(messages: Messages, uncarriable: Uncarriable) -> Carried:
    """The columns of `messages`."""
    stated = messages.stated_ms
    for place in np.flatnonzero(stated == 0).tolist():
        uncarriable(int(messages.offsets[place]), "timestamp 0, which the client takes for now", None)
    times = np.where(stated == 0, EARLIEST_MS, stated).tolist()
    return Carried(list(messages.keys), list(messages.values), times, _headers(messages, uncarriable))


def _headers(messages: Messages, uncarriable: Uncarriable) -> Sequence[Headers]:
    if messages.headers.there_are_none:
        return [None] * len(messages)
    found: list[Headers] = []
    for place in range(len(messages)):
        try:
            found.append(messages.headers[place])
        except UnreadableHeaders as error:
            uncarriable(int(messages.offsets[place]), "a header whose name is not UTF-8", error)
            found.append(None)
    return found

"""A producer that sends events at a steady rate beside what is measured."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from bench.workload import events, numbered
from calve.sink_core.kafka import clients

TICK_S = 0.02
FULL_S = 0.1


class Producing(threading.Thread):
    """Sends `per_second` events in small steps until stopped; the timestamp is the producer's.

    With `ids` each has its own: 0, 1, 2, … in the order of sending. With `stamped` the ids are the milliseconds at
    which they were sent. What the broker can't take at the moment is sent later, each once.
    """

    def __init__(
        self, bootstrap: str, topic: str, per_second: int, *, ids: bool = False, stamped: bool = False
    ) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 5}
        self._producer = Producer({**settings, "enable.idempotence": True}, logger=clients.LOGGER)
        self._topic, self._per_second, self._ids, self._stamped = topic, per_second, ids, stamped
        self._values = events(10_000)
        self._ended, self.sent, self._last_s = threading.Event(), 0, 0.0

    def run(self) -> None:
        # The first one goes alone: until a producer is connected and has its id, it only keeps what it is to send.
        self._send(0)
        self._producer.flush()
        began = time.monotonic()
        while not self._ended.is_set():
            due = 1 + int((time.monotonic() - began) * self._per_second)
            while self.sent < due and not self._ended.is_set():
                self._send(self.sent)
            self._producer.poll(0)
            time.sleep(TICK_S)
        self._producer.flush()

    def stop(self) -> float:
        """When the last record was produced."""
        self._ended.set()
        self.join()
        return self._last_s

    def _send(self, number: int) -> None:
        """Queue an event, unless the queue is full for now."""
        value = self._values[number % len(self._values)]
        if self._ids or self._stamped:
            value = numbered(value, time.time_ns() // 1_000_000 if self._stamped else number)
        try:
            self._producer.produce(self._topic, value)
        except BufferError:
            self._producer.poll(FULL_S)
            return
        self.sent, self._last_s = number + 1, time.time()

"""A producer that sends events at a steady rate beside what is measured."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer

from bench.workload import events

TICK_S = 0.02


class Producing(threading.Thread):
    """Sends `per_second` events in small steps until stopped; the timestamp is the producer's."""

    def __init__(self, bootstrap: str, topic: str, per_second: int) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 5, "acks": "all"}
        self._producer = Producer(settings)
        self._topic, self._per_second = topic, per_second
        self._values = events(10_000)
        self._ended, self.sent, self._last_s = threading.Event(), 0, 0.0

    def run(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            for number in range(self.sent, due):
                self._producer.produce(self._topic, self._values[number % len(self._values)])
                self._last_s = time.time()
            self.sent = max(self.sent, due)
            self._producer.poll(0)
            time.sleep(TICK_S)
        self._producer.flush()

    def stop(self) -> float:
        """When the last record was produced."""
        self._ended.set()
        self.join()
        return self._last_s

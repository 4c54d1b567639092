"""The producer of a soak, a process of its own: `python -m tests.soak.producer BOOTSTRAP TOPIC PER_SECOND`.

SIGTERM ends it once everything is acknowledged; it prints how many events it sent.
"""

from __future__ import annotations

import signal
import sys
import threading

from bench.producing import Producing


def main(bootstrap: str, topic: str, per_second: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    producing = Producing(bootstrap, topic, int(per_second), ids=True)
    producing.start()
    ended.wait()
    producing.stop()
    print(producing.sent, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

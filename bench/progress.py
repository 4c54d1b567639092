"""What measurements say while they work."""

from __future__ import annotations

import sys
import time


def say(line: str) -> None:
    """To stderr, with the time of day: stdout has the figures alone."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)

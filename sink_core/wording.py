"""Numbers and moments in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from calve.sink_core.tasks import WrittenBy


def counted(number: int, one: str, many: str) -> str:
    """`1 batch`, `2,000 batches`."""
    return f"{number:,} {one if number == 1 else many}"


def bytes_text(size: int) -> str:
    """`1.5 MiB`, `512 bytes`."""
    shown, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while shown >= 1024 and len(units) > 1:
        shown, units = shown / 1024, units[1:]
    return f"{size:,} bytes" if units[0] == "bytes" else f"{shown:,.1f} {units[0]}"


def dropped_text(dropped: Mapping[str, int]) -> str:
    """`channel (2,000 values), note (1 value)`: fields that were left out."""
    return ", ".join(
        f"{name or '(no name)'} ({counted(number, 'value', 'values')})" for name, number in dropped.items()
    )


def by_text(engine: WrittenBy | None) -> str:
    """`; written by spark local-1 on local[*], 2 tasks`; "" where nobody knows."""
    return f"; written by {engine}" if engine is not None else ""


def moment_text(timestamp_ms: int) -> str:
    """`2026-01-31T00:00:00.000Z`."""
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

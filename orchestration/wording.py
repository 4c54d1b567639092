"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """`1 batch`, `2,000 batches`."""
    return f"{number:,} {one if number == 1 else many}"

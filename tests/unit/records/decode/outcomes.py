"""What became of each value that was decoded."""

from __future__ import annotations

from typing import Any

from calve.sink_core.records.decode.decoded import Decoded


def outcomes(decoded: Decoded, n: int) -> list[Any]:
    """For each of n values, its row or (stage, message)."""
    decoded.columns.validate(full=True)
    found: dict[int, Any] = {value.index: (value.stage, value.message) for value in decoded.bad}
    good = list(range(n)) if decoded.good is None else decoded.good
    assert sorted([*good, *found]) == list(range(n))
    found |= dict(zip(good, decoded.columns.to_pylist(), strict=True))
    return [found[i] for i in range(n)]

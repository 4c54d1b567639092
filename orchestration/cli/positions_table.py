"""Positions as `calve positions show` shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calve.sink_core.control.status import PartitionStatus
    from calve.sink_core.source.positions import StoredOffset


@dataclass(frozen=True, slots=True)
class Positions:
    """A row for each of `parts`, dataclasses that are the entries of the JSON document."""

    parts: Sequence[Any]
    columns: list[str]
    rows: list[list[str]]


def of_topics(parts: Sequence[PartitionStatus]) -> Positions:
    """Positions in Kafka, beside what the source has."""
    rows = [
        [
            part.topic,
            str(part.partition),
            *("-" if n is None else f"{n:,}" for n in (part.position, part.log_start, part.end, part.lag)),
        ]
        for part in parts
    ]
    return Positions(parts, ["topic", "partition", "position", "log start", "end", "lag"], rows)


def of_source(parts: Sequence[StoredOffset]) -> Positions:
    """Source offsets, and what the control log knows of them."""
    rows = [[_text(part.partition), _text(part.offset), _text(part.logged)] for part in parts]
    return Positions(parts, ["source partition", "offset", "by the control log"], rows)


def _text(values: dict[str, Any] | None) -> str:
    return json.dumps(values, ensure_ascii=False) if values is not None else "-"

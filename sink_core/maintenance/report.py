"""What maintenance tasks give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OnProgress = Callable[[str], None]
"""Told what is being done, in a few words, at each longer step."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a task did at one subject: a table, the control topic or the source group.

    `did` is a sentence, also if there was nothing to do (`changed` is False then). `before` and `after` are numbers
    under names that carry their unit; equal if nothing changed.
    """

    task: str
    subject: str
    did: str
    changed: bool
    before: Mapping[str, int] = field(default_factory=dict[str, int])
    after: Mapping[str, int] = field(default_factory=dict[str, int])

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

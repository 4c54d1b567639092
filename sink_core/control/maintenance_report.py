"""What maintenance tasks give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from calve.sink_core.errors import CalveError

OnProgress = Callable[[str], None]
"""Told what is being done, in a few words, at each longer step."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
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


@dataclass(slots=True)
class MaintenanceReport:
    """What a task did, subject by subject. `failed` holds those it could not be done for, each with its reason."""

    done: list[TaskOutcome] = field(default_factory=list[TaskOutcome])
    failed: dict[str, CalveError] = field(default_factory=dict[str, CalveError])

    def raise_failures(self) -> None:
        """Raise the first failure, if there is one."""
        for error in self.failed.values():
            raise error

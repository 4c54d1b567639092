"""What a publisher is told to do, once it has read what can't change any more. A kind decides by its own plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What a publisher does after its fence."""

    PUBLISH = "publish"
    ALREADY_PUBLISHED = "already published"
    STALE = "stale batch"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the sentence that explains it.

    `given_up`: the plan is stale because it was given up, and nobody has published since. Its records wait for a new
    plan, which is up to whoever had this one.
    """

    verdict: Verdict
    why: str
    given_up: bool = False

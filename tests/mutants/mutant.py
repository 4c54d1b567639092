"""One single change to the protocol's code, and what is to catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One single change to the protocol's code, and the tests that have to fail with it."""

    name: str
    """A slug, as in the review where it comes from there."""

    path: str
    """The file, relative to the repository."""

    old: str
    """Exact text, which occurs once in the file."""

    new: str

    caught_by: tuple[str, ...]
    """pytest node ids (file or file::test), relative to the repository."""

    lost: str
    """What would be lost, for whom: one sentence."""

    survives: str = ""
    """Why it may survive, if it does."""

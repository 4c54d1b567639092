"""Which world the histories of a kind have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from calve.sink_core.rules import Rules
from tests.simulation.slots.sources import SourceWorld, load_source
from tests.simulation.slots.world import MirrorWorld, SlotWorld, load_mirror


def worlds(directory: Path) -> dict[str, Callable[[int, Rules], SlotWorld]]:
    """By kind what makes the world of a seed; the files of both pipelines are written below `directory`."""
    mirror, source = load_mirror(directory), load_source(directory)
    return {
        "mirror": lambda seed, rules: MirrorWorld(seed, mirror, rules),
        "source": lambda seed, rules: SourceWorld(seed, source, rules),
    }

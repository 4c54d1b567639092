"""What each kind of pipeline gives to Dagster: a kind is added here, and in `sink_core/config/kinds.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calve.orchestration.dagster.common.parts import Parts
from calve.orchestration.dagster.mirror.parts import mirror_parts
from calve.orchestration.dagster.sink.parts import sink_parts
from calve.orchestration.dagster.source.parts import source_parts

KINDS: dict[str, Callable[[Any], Parts]] = {"sink": sink_parts, "mirror": mirror_parts, "source": source_parts}
"""By the kind's name, what makes the parts of one of its pipelines. It opens no connection."""

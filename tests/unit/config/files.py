"""The least that a pipeline file and its connections hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calve.sink_core.config.sink_pipeline import SinkPipeline

CONNECTIONS: dict[str, Any] = {
    "deployment": "dev",
    "kafka": {"main": {"bootstrap.servers": "localhost:9092"}},
    "catalog": {"lake": {"type": "sql", "uri": "sqlite:///lake/catalog.db", "warehouse": "file:///lake/"}},
    "spark": {"big": {"remote": "sc://host:15002"}},
}
PIPELINE: dict[str, Any] = {
    "name": "flights",
    "source": {"kafka": "main", "topics": ["flights"]},
    "catalog": "lake",
    "tables": [{"name": "air.flights"}],
}

Write = Callable[..., Path]
Load = Callable[..., SinkPipeline]

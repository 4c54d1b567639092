"""Fixtures that write and load configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from tests.unit.config.files import CONNECTIONS, PIPELINE, Load, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(connections={…}, **changes)`: both files with top-level keys replaced; returns the pipeline file."""

    def both(connections: dict[str, Any] | None = None, **changes: object) -> Path:
        shared = tmp_path / "connections.yaml"
        shared.write_text(yaml.safe_dump(CONNECTIONS | (connections or {})), encoding="utf-8")
        path = tmp_path / "pipeline.yaml"
        path.write_text(yaml.safe_dump(PIPELINE | changes, sort_keys=False), encoding="utf-8")
        return path

    return both


@pytest.fixture
def loaded(write: Write) -> Load:
    """As `write`, and the files read."""

    def read(connections: dict[str, Any] | None = None, **changes: object) -> SinkPipeline:
        return load(write(connections, **changes))

    return read

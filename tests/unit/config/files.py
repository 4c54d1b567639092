"""The least that a pipeline file and its connections hold, and how a fault of one is expected."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline
from tests.codes import holds, raises

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


@contextmanager
def refused(file: str, key: str, *values: object) -> Generator[None]:
    """Expect that the first fault that is said is of this key of the file, and names each of the values."""
    with raises(Code.SETTINGS) as caught:
        yield
    first = caught.value.message.splitlines()[0]
    place = re.match(rf".*{re.escape(file)}:\d+: {re.escape(key)}: ", first)
    assert place, f"not of {key}: {first}"
    holds(first[place.end() :], *values)


@contextmanager
def invalid(key: str, *values: object) -> Generator[None]:
    """Expect that a model refuses what it is given for this key, and nothing else, and names each of the values."""
    with pytest.raises(ValidationError) as caught:
        yield
    faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in caught.value.errors(include_url=False)]
    assert [place for place, _ in faults] == [key], faults
    holds(faults[0][1], *values)

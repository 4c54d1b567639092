"""The kinds of pipelines: the place where a new one is added, and `orchestration/dagster/kinds.py` for Dagster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Generic, TypeVar

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.config.mirror import MirrorConfig
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.sink import SinkConfig
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.config.source import SourceConfig
from calve.sink_core.config.source_pipeline import SourcePipeline

C = TypeVar("C", bound=PipelineConfig)


@dataclass(frozen=True, slots=True)
class Kind(Generic[C]):
    """The model of a kind's pipeline file, the class of its pipelines, and what makes one: of the file, of
    `connections.yaml`, in which all connections are that the file names, and of the file's path.
    """

    config: type[C]
    pipeline: type[Pipeline]
    assemble: Callable[[C, Connections, Path], Pipeline]


KINDS: dict[str, Kind[Any]] = {
    "sink": Kind(SinkConfig, SinkPipeline, SinkPipeline.of),
    "mirror": Kind(MirrorConfig, MirrorPipeline, MirrorPipeline.of),
    "source": Kind(SourceConfig, SourcePipeline, SourcePipeline.of),
}
"""By what `kind` says."""

DEFAULT = "sink"
"""The kind of a file that doesn't say it."""


def file_type() -> Any:
    """The type of a pipeline file: one of the models, for JSON schemas."""
    return reduce(or_, (kind.config for kind in KINDS.values()))

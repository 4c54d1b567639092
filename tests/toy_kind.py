"""A kind of pipeline in one file: it copies the lines of one text file to the end of another.

What a kind has to bring, and no more: the model of its file, the class of its pipelines, its events and what they add
up to, its control plane, its parts in Dagster. `register` does what the modules named `kinds` do for the real ones, in
`sink_core/config`, `orchestration/cli` and `orchestration/dagster`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import dagster as dg
import pytest

from calve.orchestration.cli import kinds as commands
from calve.orchestration.dagster import kinds
from calve.orchestration.dagster.common.assets import group_and_owners, pipeline_file
from calve.orchestration.dagster.common.names import op_name
from calve.orchestration.dagster.common.parts import Parts, asset_job
from calve.orchestration.dagster.common.trigger import Sight
from calve.sink_core.config import kinds as registry
from calve.sink_core.config.assemble import kafka_settings, spark_settings
from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import Connections, KafkaChoice
from calve.sink_core.config.effective import Pipeline
from calve.sink_core.config.model import Location
from calve.sink_core.control import schemas
from calve.sink_core.control.events import BatchPublished, BatchStarted, Checkpoint
from calve.sink_core.control.fold import CORE, EventType, Fold
from calve.sink_core.control.plane import ControlPlane
from calve.sink_core.control.state import LogState
from calve.sink_core.finding import FindingKind
from calve.sink_core.offsets import TopicPartition

COPY = "copy"

OTHER_FILE = FindingKind(
    code="TOY-1",
    name="other-file",
    part="binding",
    title="The file that is read is another one",
    seen_by="the fingerprint",
    meaning="The source of a toy was exchanged.",
    remedy="Put it back.",
    hint="put the file back",
)


class ToyConfig(PipelineConfig):
    """A pipeline file of a toy."""

    kind: Literal["toy"] = "toy"
    """`toy`: a text file to another."""

    kafka: KafkaChoice
    """The cluster that would have its control topic."""

    reads: str
    """The file that is read, its path relative to the pipeline file's folder."""

    writes: str
    """The file that the lines are put into."""

    def connections(self) -> Iterator[tuple[Location, object]]:
        yield ("kafka",), self.kafka
        yield from super().connections()


@dataclass(frozen=True)
class ToyPipeline(Pipeline):
    """A toy. Its position is how many lines it has written."""

    config: ToyConfig

    @classmethod
    def of(cls, config: ToyConfig, connections: Connections, path: Path) -> ToyPipeline:
        kafka, spark = kafka_settings(config.kafka, connections), spark_settings(config.spark, connections)
        return cls(config, connections.deployment, kafka, spark, path)

    def pending(self) -> list[str]:
        """Lines that were read by nobody yet."""
        return _lines(self.path.parent / self.config.reads)[len(_lines(self.path.parent / self.config.writes)) :]

    def copy(self) -> int:
        """Write what is pending; the number of lines."""
        pending = self.pending()
        with (self.path.parent / self.config.writes).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in pending)
        return len(pending)


@dataclass(frozen=True, slots=True)
class Copy:
    """Lines of one file in a batch."""

    file: str
    lines: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyStarted(BatchStarted):
    event_type: ClassVar[str] = "COPY_STARTED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied(BatchPublished):
    event_type: ClassVar[str] = "COPIED"
    copies: tuple[Copy, ...]


@dataclass(slots=True)
class ToyState(LogState[Copied, Checkpoint]):
    """Adds the number of lines by file."""

    lines: dict[str, int] = field(default_factory=dict[str, int])

    def copied(self, offset: int, event: Copied) -> None:
        self.publish(offset, event)
        for copy in event.copies:
            self.lines[copy.file] = self.lines.get(copy.file, 0) + copy.lines


BATCH = schemas.strings("batch_id", "predecessor")
COPIES: schemas.Schema = {
    "type": "record",
    "name": "Copy",
    "fields": [*schemas.strings("file"), {"name": "lines", "type": "long"}],
}
COPIED: schemas.Fields = [
    *BATCH,
    {"name": "topic_ids", "type": schemas.STRING_MAP},
    {"name": "positions", "type": schemas.BY_PARTITION},
    {"name": "copies", "type": {"type": "array", "items": COPIES}},
]
TOY = Fold(
    ToyState,
    (
        *CORE,
        EventType(CopyStarted, BATCH, ToyState.start),
        EventType(Copied, COPIED, ToyState.copied),
        EventType(Checkpoint, schemas.CHECKPOINT, ToyState.restore),
    ),
    kind="toy",
)


class ToyPlane(ControlPlane[ToyPipeline, ToyState]):
    """A toy is bound to the file that it reads."""

    elsewhere = OTHER_FILE

    def __init__(self, pipeline: ToyPipeline) -> None:
        super().__init__(pipeline, TOY)

    @property
    def fingerprint(self) -> str:
        return f"file {self.pipeline.config.reads}"

    def source_partitions(self) -> list[TopicPartition]:
        return []


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


@dataclass(frozen=True)
class ToyWatch:
    """What the sensor asks."""

    pipeline: ToyPipeline

    def look(self) -> Sight:
        lag = len(self.pipeline.pending())
        return Sight(lag=lag, end=lag, bootstrapped=True)

    def observations(self) -> list[dg.AssetObservation]:
        return []

    def through_s(self) -> Mapping[str, float]:
        return {}


def toy_parts(pipeline: ToyPipeline) -> Parts:
    """One asset, the copy."""

    @dg.asset(
        name=op_name(pipeline, COPY), metadata=pipeline_file(pipeline), kinds={"file"}, **group_and_owners(pipeline)
    )
    def copy() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"records": pipeline.copy()})

    return Parts(
        stage=COPY,
        moves=asset_job(pipeline, COPY, dg.AssetSelection.assets(copy), f"Copies lines for {pipeline.name}."),
        watch=ToyWatch(pipeline),
        reads=f"file {pipeline.config.reads}",
        assets=[copy],
    )


def register(patch: pytest.MonkeyPatch) -> None:
    """Let there be toys until the patch is undone."""
    patch.setitem(registry.KINDS, "toy", registry.Kind(ToyConfig, ToyPipeline, ToyPipeline.of))
    patch.setitem(commands.KINDS, "toy", commands.Kind(ToyPlane, ToyPlane))
    patch.setitem(kinds.KINDS, "toy", toy_parts)

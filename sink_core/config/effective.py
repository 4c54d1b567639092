"""A pipeline with everything it names, as far as it is the same for every kind: the value Calve works with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from calve.sink_core.config.common import PipelineConfig
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.references import redact

INLINE = "inline"


@dataclass(frozen=True)
class KafkaSettings:
    """A Kafka cluster; `properties` are librdkafka's with references unresolved (`references.resolve` opens them)."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class CatalogSettings:
    """An Iceberg catalog; `properties` are pyiceberg's, `spark` those of Iceberg's Spark catalog, both unresolved."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class HudiSettings:
    """A place of Hudi tables; `warehouse`, `properties`, which are Hadoop's, and those of its `spark`, unresolved."""

    name: str
    warehouse: str
    properties: Mapping[str, Any] = field(repr=False)
    spark: Mapping[str, Any] = field(repr=False, default_factory=dict[str, Any])


@dataclass(frozen=True)
class DatabaseSettings:
    """A database; `properties` are its address, unresolved."""

    name: str
    properties: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline file and the connections it names. `path` is the file it came from, `kafka` the cluster that has its
    control topic and its group. Each kind has a class of its own below it.
    """

    config: PipelineConfig
    deployment: str
    kafka: KafkaSettings
    spark: SparkSettings
    path: Path

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def kind(self) -> str:
        return self.config.kind

    @property
    def group(self) -> str:
        """The source group; its committed offsets are the positions."""
        return f"calve.{self.deployment}.{self.config.first_name}"

    @property
    def control_topic(self) -> str:
        return f"{self.group}.control"

    @property
    def transactional_id(self) -> str:
        return f"{self.group}.publisher"

    @cached_property
    def config_fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of the pipeline file with its defaults, secrets left out."""
        canonical = json.dumps(self._shown_config(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def _shown_config(self) -> dict[str, Any]:
        shown = self.config.shown()
        for location, _ in self.config.connections():
            section: Any = shown
            for part in location[:-1]:
                section = section[part]
            key = location[-1]
            # Only connections hold secrets; a column may well be called token.
            if isinstance(section.get(key), dict):
                section[key] = redact(section[key])
        return shown

    def describe(self) -> dict[str, Any]:
        """Both files as they take effect, defaults filled in and secrets hidden, and the names derived from them."""
        return {
            "pipeline": self._shown_config(),
            "connections": {"deployment": self.deployment, **self._connections()},
            "derived": {**self._derived(), "config_fingerprint": self.config_fingerprint},
        }

    def _connections(self) -> dict[str, Any]:
        """Section of `connections.yaml` → name → what is chosen of it, secrets hidden."""
        spark = self.spark.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {
            "kafka": {self.kafka.name: redact(self.kafka.properties)},
            "spark": {name_of(self.config.spark): redact(spark)},
        }

    def _derived(self) -> dict[str, str]:
        return {
            "group": self.group,
            "control_topic": self.control_topic,
            "transactional_id": self.transactional_id,
        }


@dataclass(frozen=True)
class SlotPipeline(Pipeline):
    """A pipeline whose tasks have transactions of their own; `kafka` is the cluster that is written to."""

    def slot_id(self, slot: int) -> str:
        """The transactional id of a slot."""
        return f"{self.group}.slot-{slot}"

    def _derived(self) -> dict[str, str]:
        return {**super()._derived(), "slots": self.slot_id(0).removesuffix("0") + "N"}


def name_of(chosen: object) -> str:
    """What a connection is called that a pipeline file names, or has within it."""
    return chosen if isinstance(chosen, str) else INLINE

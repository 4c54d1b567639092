"""A source with the cluster that it writes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.sink_core.config.assemble import kafka_settings, spark_settings
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import SlotPipeline
from calve.sink_core.config.references import redact
from calve.sink_core.config.source import SourceConfig


@dataclass(frozen=True)
class SourcePipeline(SlotPipeline):
    """A pipeline of kind `source`; `kafka` is the cluster that is written to, which has its control topic, its source
    offsets and its group.
    """

    config: SourceConfig

    @classmethod
    def of(cls, config: SourceConfig, connections: Connections, path: Path) -> SourcePipeline:
        """With the connections that the file names, all of which are there."""
        return cls(
            config=config,
            deployment=connections.deployment,
            kafka=kafka_settings(config.target.kafka, connections),
            spark=spark_settings(config.spark, connections),
            path=path,
        )

    @property
    def connector(self) -> str:
        """What stands in the keys of source offsets."""
        return self.config.first_name

    @property
    def offsets_topic(self) -> str:
        return self.config.offsets.topic or f"{self.group}.offsets"

    def _shown_config(self) -> dict[str, Any]:
        shown = super()._shown_config()
        # A source's options may hold its password.
        return {**shown, "source": redact(shown["source"])}

    def _derived(self) -> dict[str, str]:
        return {**super()._derived(), "offsets_topic": self.offsets_topic}

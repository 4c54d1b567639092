"""A source with the cluster that it writes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calve.sink_core.config.assemble import database_settings, kafka_settings, spark_settings
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.effective import DatabaseSettings, SlotPipeline
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.config.references import redact
from calve.sink_core.config.source import SourceConfig
from calve.sink_core.config.source_systems import DatabaseSource, FilesSource


@dataclass(frozen=True)
class SourcePipeline(SlotPipeline):
    """A pipeline of kind `source`; `kafka` is the cluster that is written to, which has its control topic, its source
    offsets and its group.
    """

    config: SourceConfig
    database: DatabaseSettings | None = None
    registry: RegistrySettings | None = None

    @classmethod
    def of(cls, config: SourceConfig, connections: Connections, path: Path) -> SourcePipeline:
        """With the connections that the file names, all of which are there."""
        database = config.source.database if isinstance(config.source, DatabaseSource) else None
        registry = config.target.value.registry if config.target.value is not None else None
        return cls(
            config=config,
            database=database_settings(database, connections) if database is not None else None,
            registry=RegistrySettings(registry, connections.registry[registry].properties) if registry else None,
            deployment=connections.deployment,
            kafka=kafka_settings(config.target.kafka, connections),
            spark=spark_settings(config.spark, connections),
            path=path,
        )

    @property
    def connector(self) -> str:
        """What stands in the keys of source offsets."""
        return self.config.connect.connector if self.config.connect else self.config.first_name

    @property
    def offsets_topic(self) -> str:
        return self.config.offsets.topic or f"{self.group}.offsets"

    def slot_id(self, slot: int) -> str:
        """That of a connector's task, where it is to be the same: Connect and Calve then fence each other."""
        connect = self.config.connect
        return f"{connect.group}-{connect.connector}-{slot}" if connect else super().slot_id(slot)

    @property
    def reads(self) -> str:
        """What is read, for people."""
        return self.config.source.title

    @property
    def tables(self) -> dict[str, str]:
        """The topic of each table that the file names."""
        source, names = self.config.source, self.config.topic_names
        tables = source.named if isinstance(source, DatabaseSource) else ()
        return {table: names.of(*table.split(".")) for table in tables}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the file tells of. A source may have others, of which it says once it is opened."""
        source = self.config.source
        return (source.files.topic,) if isinstance(source, FilesSource) else tuple(self.tables.values())

    def _connections(self) -> dict[str, Any]:
        shown = super()._connections()
        if self.database is not None:
            shown["database"] = {self.database.name: redact(self.database.properties)}
        if self.registry is not None:
            shown["registry"] = {self.registry.name: redact(self.registry.properties)}
        return shown

    def _shown_config(self) -> dict[str, Any]:
        shown = super()._shown_config()
        # A source's options may hold its password.
        return {**shown, "source": redact(shown["source"])}

    def _derived(self) -> dict[str, str]:
        return {**super()._derived(), "offsets_topic": self.offsets_topic}

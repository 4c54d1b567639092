"""`connections.yaml`: what pipelines share, by name. Keys of librdkafka, pyiceberg and Spark are handed through."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from calve.sink_core.config.model import Model, NestedProperty, Property, Text, refusal
from calve.sink_core.config.units import Bytes
from calve.sink_core.config.urls import address_of

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,40}$")]
"""The name of a connection."""

OWNED_BY_CALVE = {
    "group.id": "Calve manages the source group itself and derives its name from deployment and pipeline",
    "transactional.id": "one transactional id per pipeline is what fences an older writer; Calve derives it",
    "enable.auto.commit": "positions are committed in the transaction that publishes their files, never by the client",
    "isolation.level": "a batch ends at the last stable offset, which read_committed alone guarantees",
    "auto.offset.reset": "a missing offset is a finding to be resolved; a reset would lose or double records silently",
    "enable.partition.eof": "it is how a task knows that a range ends in offsets without records",
    "enable.idempotence": "transactions need it; Calve keeps it on",
}
"""librdkafka keys that decide about exactly-once, and why each is not the user's."""


def _not_owned(key: str) -> str:
    if key in OWNED_BY_CALVE:
        raise refusal(f"not to be set: {OWNED_BY_CALVE[key]}")
    return key


class PassThrough(Model):
    """A mapping whose other keys are a library's own."""

    model_config = ConfigDict(extra="allow")
    # Pydantic types extra values by this annotation; its own declaration allows None for models without extras.
    __pydantic_extra__: dict[str, Property] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]


class KafkaConnection(PassThrough):
    """A Kafka cluster: librdkafka's own keys."""

    __pydantic_extra__: dict[Annotated[str, AfterValidator(_not_owned)], Property] = Field(init=False)

    bootstrap_servers: Text = Field(alias="bootstrap.servers", min_length=1)
    """Brokers to begin with, `host:port`, separated by commas. All other keys of librdkafka may stand beside it, such
    as `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`, `ssl.ca.location`; refused are those
    that Calve must own for exactly-once."""

    @property
    def properties(self) -> dict[str, Any]:
        """librdkafka's configuration, references unresolved."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.__pydantic_extra__}


class RegistryConnection(PassThrough):
    """A schema registry with Confluent's API."""

    url: Text = Field(min_length=1)
    """Address of the registry; several, separated by commas, are tried in turn. All other keys of confluent-kafka's
    registry client may stand beside it, such as `basic.auth.user.info`, `ssl.ca.location`, `timeout` (seconds; default
    10), `max.retries`."""

    @property
    def properties(self) -> dict[str, Any]:
        """The client's configuration, references unresolved."""
        return {"url": self.url, **self.__pydantic_extra__}


class CatalogConnection(PassThrough):
    """An Iceberg catalog: pyiceberg's own keys."""

    __pydantic_extra__: dict[str, NestedProperty] = Field(init=False)

    name: Name | None = None
    """The catalog's own name, which a SQL catalog stores with each table. Default: the key in `connections.yaml`;
    `calve` for a catalog written inline."""

    type: str | None = None
    """pyiceberg's catalog type: `rest`, `sql`, `hive`, `glue`, … Required unless `py-catalog-impl` is given."""

    uri: Text | None = None
    """Address of the catalog service, or the SQL database's URL."""

    warehouse: Text | None = None
    """Where tables without a location of their own are put, or the warehouse's name in a REST catalog. All other keys
    of pyiceberg may stand beside these."""

    spark: dict[str, Property] = Field(default={})
    """Keys of Iceberg's Spark catalog (without `spark.sql.catalog.<name>.`) that can't be derived from pyiceberg's."""

    @model_validator(mode="after")
    def _has_a_type(self) -> Self:
        if self.type is None and "py-catalog-impl" not in self.__pydantic_extra__:
            raise refusal("has no type; set type: rest, sql, hive or glue (or py-catalog-impl)")
        return self

    @property
    def properties(self) -> dict[str, Any]:
        """pyiceberg's properties, references unresolved, without `name` and `spark`."""
        ours = {"type": self.type, "uri": self.uri, "warehouse": self.warehouse}
        return {key: value for key, value in ours.items() if value is not None} | self.__pydantic_extra__


class HudiConnection(PassThrough):
    """Where Hudi tables are: keys of Hadoop's file systems may stand beside it."""

    __pydantic_extra__: dict[str, Property] = Field(init=False)

    warehouse: Text = Field(min_length=1)
    """The folder of the tables: `namespace.table` is in `namespace/table` below it. A path of this machine, or of a
    file system that all machines of the pipeline have mounted there."""

    spark: dict[str, Property] = Field(default={})
    """Settings of the Spark 3.5 that brings row changes in: `spark.driver.memory` is its heap. It runs on the machine
    that commits."""

    @property
    def properties(self) -> dict[str, Any]:
        """Hadoop's, references unresolved."""
        return dict(self.__pydantic_extra__)


class DatabaseConnection(Model):
    """A database that a source reads: its parts, or its address in one. For the log of a PostgreSQL database the user
    needs `REPLICATION`, and `SELECT` on the tables.
    """

    host: Text | None = Field(default=None, min_length=1)
    """The machine that it is on. Needed, unless `url` is given."""

    port: int | None = Field(default=None, ge=1, le=65535)
    """Default: that of the kind of database."""

    user: Text | None = Field(default=None, min_length=1)
    """Who logs in."""

    password: Text | None = Field(default=None, min_length=1)
    """The user's, such as `${ENV:PASSWORD}`, whatever characters it has."""

    database: Text | None = Field(default=None, min_length=1)
    """The name of the database. Needed, unless `url` is given."""

    dialect: str = Field(default="postgresql", pattern=r"^[a-z][a-z0-9_]*(\+[a-z][a-z0-9_]*)?$")
    """What SQLAlchemy calls the kind of database, and with `+` its driver: `postgresql`, `mysql+pymysql`."""

    options: dict[str, Text] = Field(default={})
    """Parameters of the driver, such as `{sslmode: verify-full}`."""

    url: Text | None = Field(default=None, min_length=1)
    """In place of all these the address as SQLAlchemy takes it: `sqlite:////data/shop.db`, or
    `postgresql://user:${ENV:PASSWORD}@host:5432/shop`. What comes by a reference is percent-encoded for its place."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        parts = sorted(self.model_fields_set - {"url"})
        if self.url is not None and parts:
            raise refusal(f"has url, and {', '.join(parts)} beside it; give one or the others")
        if self.url is None and (self.host is None or self.database is None):
            raise refusal("needs host and database, or url")
        if self.password is not None and self.user is None:
            raise refusal("has a password and no user")
        return self

    @property
    def properties(self) -> dict[str, Any]:
        """The address, references unresolved."""
        if self.url is not None:
            return {"url": self.url}
        return {
            "url": address_of(
                self.dialect,
                self.host or "",
                self.database or "",
                port=self.port,
                user=self.user,
                password=self.password,
                parameters=self.options,
            )
        }


class SparkSettings(Model):
    """Where Spark runs. `master` starts a driver in Calve's process, `remote` uses Spark Connect."""

    master: Text | None = None
    """Spark master: `local[*]`, `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`. Exactly one of `master` and
    `remote`."""

    remote: Text | None = None
    """Spark Connect address: `sc://host:15002`. `calve spark start` starts a server for this machine."""

    conf: dict[str, Property] = Field(default={})
    """Spark's own settings, handed through."""

    tasks: int | None = Field(default=None, ge=1)
    """Most tasks a batch is cut into. Default: the cores Spark reports."""

    driver_memory: Bytes | None = None
    """Heap of the driver that `master` starts. Default: Spark's own."""

    warm: Text = "auto"
    """A Spark that stays up for the runs of this machine, which are spared its start. `auto`: runs use the one that
    `calve spark start` or Dagster has started, and each starts a Spark of its own where there is none; its files are in
    a folder of this `connections.yaml` and name in `~/.cache/calve/spark` (`CALVE_SPARK` names another place). A
    folder: the same, there. `never`: always one of its own. With `remote` it means nothing."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.master is None) == (self.remote is None):
            given = "neither" if self.master is None else "both"
            raise refusal(
                f"needs exactly one of master and remote, {given} given; for one machine set master: 'local[*]'"
            )
        return self

    def placed(self, file: Path, name: str) -> Self:
        """The same with a folder for `warm`, perhaps with references in it. `file` is that of the connections."""
        if self.warm == "never" or self.warm.startswith("${"):
            return self
        if self.warm == "auto":
            try:
                place = Path(os.environ.get("CALVE_SPARK") or Path.home() / ".cache" / "calve" / "spark")
            except RuntimeError:
                # A user without a home, as in some containers.
                return self.model_copy(update={"warm": "never"})
            warm = place / f"{name}-{hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:12]}"
        else:
            warm = file.parent.absolute() / self.warm
        return self.model_copy(update={"warm": str(warm)})


class Connections(Model):
    """`connections.yaml`: the deployment and the connections pipelines name."""

    deployment: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,20}$")
    """The environment, such as `prod` or `dev`; part of every Kafka id, so that two environments on one cluster don't
    meet. `^[a-z][a-z0-9_-]{0,20}$`"""

    kafka: dict[Name, KafkaConnection] = Field(default={})
    """Kafka clusters by name."""

    registry: dict[Name, RegistryConnection] = Field(default={})
    """Schema registries by name."""

    catalog: dict[Name, CatalogConnection] = Field(default={})
    """Iceberg catalogs by name."""

    hudi: dict[Name, HudiConnection] = Field(default={})
    """Places of Hudi tables, by name."""

    database: dict[Name, DatabaseConnection] = Field(default={})
    """Databases that sources read, by name."""

    spark: dict[Name, SparkSettings] = Field(default={})
    """Places to run Spark, by name."""


# Parts of an error's location that start with "<" name a branch of a union, not a key, and are not shown.
_NAMED, _INLINE = Tag("<name>"), Tag("<inline>")


def _name_or_inline(given: object) -> str:
    return "<inline>" if isinstance(given, Mapping | BaseModel) else "<name>"


_EITHER = Discriminator(_name_or_inline)
KafkaChoice = Annotated[Annotated[Name, _NAMED] | Annotated[KafkaConnection, _INLINE], _EITHER]
CatalogChoice = Annotated[Annotated[Name, _NAMED] | Annotated[CatalogConnection, _INLINE], _EITHER]
HudiChoice = Annotated[Annotated[Name, _NAMED] | Annotated[HudiConnection, _INLINE], _EITHER]
DatabaseChoice = Annotated[Annotated[Name, _NAMED] | Annotated[DatabaseConnection, _INLINE], _EITHER]
SparkChoice = Annotated[Annotated[Name, _NAMED] | Annotated[SparkSettings, _INLINE], _EITHER]
"""A connection as a pipeline file gives it: by its name, or as a mapping."""

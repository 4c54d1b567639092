"""What the pipeline file of every kind holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from calve.sink_core.config.connections import SparkChoice, SparkSettings
from calve.sink_core.config.fields import Cron, Owner
from calve.sink_core.config.maintenance import Maintenance
from calve.sink_core.config.model import Location, Model
from calve.sink_core.config.units import GIB, MIB, MINUTE, Bytes, Duration


class Trigger(Model):
    """When the sensor starts a run."""

    every: Duration = Field(default=1 * MINUTE, gt=0)
    """Start a run when records wait and the last publish was so long ago: a topic that never stops makes one batch in
    this time. A record waits at most so long for its run. The sensor looks every 5 s."""

    or_records: int = Field(default=1_000_000, ge=1)
    """Start a run at once when this many records wait."""


BATCH_LINES = """\
# The most that one batch reads. Spark writes it; one of fewer records than spark_from_records the run itself, which is
# spared Spark's start, and has one process on one machine to do it.
# batch: {max_records: 10000000, max_bytes: 4GiB, spark_from_records: 0}"""
"""What a new pipeline file says of its batches."""


class Batch(Model):
    """The most one batch reads, and how soon the next one follows."""

    max_records: int = Field(default=10_000_000, ge=1)
    """Offsets in a batch."""

    max_bytes: Bytes = Field(default=4 * GIB, gt=0)
    """Estimated size of a batch's records, as stored in Kafka."""

    min_task_bytes: Bytes = Field(default=16 * MIB, gt=0)
    """A partition is split over several Spark tasks only into pieces of at least this size."""

    spark_from_records: int = Field(default=0, ge=0)
    """Work of fewer records, a batch or a replay, is done by the run's own process, without Spark: that saves Spark's
    start, and costs that one process of one machine does it all. 0: Spark does all work. What only Spark can do it
    always does: merges, and changes that are held against their table's rows."""

    every: Duration | None = None
    """The least time between the batches of a run that lingers, unless `trigger.or_records` wait. Default:
    `trigger.every`."""


class Run(Model):
    """How long one run goes on."""

    max_batches: int = Field(default=30, ge=1)
    """Batches in a run."""

    max_duration: Duration = Field(default=10 * MINUTE, gt=0)
    """No new batch is begun after this."""

    linger: Duration = 0.0
    """A run reads what waited at its start and ends. With this it stays until nothing has come for so long, and makes a
    batch each `batch.every`: fresh tables without a new Spark start for each batch."""


class Objectives(Model):
    """What the pipeline is measured against."""

    freshness: Duration | None = None
    """Greatest age of a record that is not in its table yet; a check fails above it, whether runs start or not."""

    lag: Annotated[int, Field(ge=0)] | None = None
    """Greatest number of records that wait; a check fails above it, whether runs start or not."""


class Dagster(Model):
    """How the pipeline appears in Dagster."""

    group: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_]+$")
    """Asset group. Default: the pipeline's name."""

    owners: tuple[Owner, ...] = ()
    """`team:name` or an e-mail address."""

    automatic: bool = True
    """Sensor and schedules run from the first load on. `false`: they are switched on in the UI. The sensor that
    watches, which starts nothing, runs all the same."""

    operations: bool = True
    """Jobs to pause, resume, answer findings and replay. `false`: they are left to the command line, and whoever may
    open the UI can start runs and look, and stop those in progress, no more."""

    checks: Cron | None = None
    """When the checks run beside those after each run, the proof of the ledger among them. Default: once an hour."""

    prove_since: Duration | None = Field(default=None, gt=0)
    """How far back the proof among the checks looks, as `calve verify --since` does. Default: at everything."""


class PipelineConfig(Model):
    """A pipeline file, as far as it is the same for every kind. Each kind has a model of its own below it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """The pipeline's name, part of every id it has in Kafka and Iceberg. `^[a-z][a-z0-9_]{0,40}$`"""

    takes_over: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]{0,40}$")
    """The name that the pipeline had at its first run, if it was renamed since. Its ids in Kafka and Iceberg keep that
    name, as do ledger and dead letters: it stays the same pipeline. Leave it in for good."""

    kind: str
    """What the pipeline moves, and to where."""

    trigger: Trigger = Trigger()
    """When the sensor starts a run."""

    batch: Batch = Batch()
    """The most one batch reads, and how soon the next one follows."""

    run: Run = Run()
    """How long one run goes on."""

    objectives: Objectives = Objectives()
    """What the pipeline is measured against."""

    spark: SparkChoice = SparkSettings(master="local[*]")
    """A name from `connections.yaml`, or a mapping. Default: `{master: "local[*]"}`, this machine."""

    maintenance: Maintenance = Maintenance()
    """Maintenance of the control topic and of the positions."""

    dagster: Dagster = Dagster()
    """How the pipeline appears in Dagster."""

    @property
    def first_name(self) -> str:
        """The name in every id in Kafka and Iceberg."""
        return self.takes_over or self.name

    def connections(self) -> Iterator[tuple[Location, object]]:
        """Where connections are chosen, each with its choice: a name, a mapping, or None for no connection.

        The last key of a location is the section of `connections.yaml` that a name is of.
        """
        yield ("spark",), self.spark

    @classmethod
    def key_order(cls) -> list[str]:
        """The keys as people write them: which pipeline it is, what its kind alone has, how it runs."""
        common = list(PipelineConfig.model_fields)
        identity = common[: common.index("kind") + 1]
        own = [key for key in cls.model_fields if key not in common]
        return [*identity, *own, *common[len(identity) :]]

    def shown(self) -> dict[str, Any]:
        """As it takes effect, keys in the order of `key_order`; what is secret in it is not hidden."""
        dumped = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {key: dumped[key] for key in self.key_order() if key in dumped}

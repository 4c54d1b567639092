"""The section `maintenance` of a sink: besides what every kind has there, the maintenance of its tables."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from calve.sink_core.config.fields import Cron
from calve.sink_core.config.maintenance import Maintenance
from calve.sink_core.config.model import Model, refusal
from calve.sink_core.config.units import DAY, GIB, HOUR, Bytes, Duration

Task = Literal["compact", "manifests", "expire", "orphans", "trim", "keep_alive"]
"""What maintenance does, each with settings of its name."""

TASKS: tuple[Task, ...] = get_args(Task)


class Compact(Model):
    """Join small files, and take out of files what many deletes are for."""

    cron: Cron | None = None
    """When, five cron fields. Default: once an hour, at a minute of the pipeline's own."""

    strategy: Literal["binpack", "sort"] = "binpack"
    """`binpack` joins files as they are; `sort` also sorts the rows of tables that have a sort order."""

    min_files: int = Field(default=5, ge=2)
    """A partition is rewritten from this many small files on: files below three quarters of the target size."""

    lag: Duration = 1 * HOUR
    """Files younger than this don't count towards `min_files`, so that a partition that is being written is rewritten
    once in a while rather than each time."""

    max_deletes: int = Field(default=10, ge=1)
    """A data file that readers have to match with this many files of equality deletes is rewritten, whatever its size
    and age."""

    max_bytes: Bytes = Field(default=20 * GIB, gt=0)
    """Bytes rewritten in one run, over all tables; the partitions with the most small files come first."""


class Manifests(Model):
    """Rewrite manifests, of which each batch adds one per table."""

    cron: Cron | None = None
    """When, five cron fields. Default: once a day, at a minute of the pipeline's own."""

    min_count: int = Field(default=100, ge=2)
    """Manifests from which on a table's are rewritten."""


class Expire(Model):
    """Expire old snapshots, with the files that only they name."""

    cron: Cron | None = None
    """When, five cron fields. Default: once a day, at a minute of the pipeline's own."""

    older_than: Duration = 7 * DAY
    """Snapshots younger than this stay, up to `keep_at_most`."""

    keep_at_most: Annotated[int, Field(ge=1)] | None = 5_000
    """Of more snapshots than this the oldest go, however young they are, `null` for no such bound: where commits come
    every second, a week has 600,000 of them, and each commit reads and writes them all. Of instants of Hudi tables 100
    stay by default: each commit lists them many times."""

    retain_last: int = Field(default=1, ge=1)
    """This many snapshots stay, however old they are."""

    @model_validator(mode="after")
    def _keeps_what_stays(self) -> Self:
        # The default gives way: `retain_last` stay in any case.
        given = self.keep_at_most if "keep_at_most" in self.model_fields_set else None
        if given is not None and given < self.retain_last:
            raise refusal(f"keep_at_most {given} is less than retain_last {self.retain_last}")
        return self


def _three_days(seconds: float) -> float:
    if seconds < 3 * DAY:
        raise refusal("is too short: a batch in flight could lose its files; set at least 3d")
    return seconds


class Orphans(Model):
    """Delete files that nothing names; a table's first run only lists them."""

    cron: Cron | None = None
    """When, five cron fields. Default: once a week, at a minute of the pipeline's own."""

    older_than: Annotated[Duration, AfterValidator(_three_days)] = 5 * DAY
    """Files younger than this stay; at least 3d, so that no running batch loses its files."""


class SinkMaintenance(Maintenance):
    """Maintenance of tables and control topic, all of it scheduled unless it is `off`. Tables that Calve has not
    created are left out: `compact` and `manifests` take them if they are given here, `expire` and `orphans` if
    `tables[].owned` says so."""

    off: tuple[Task, ...] = ()
    """Tasks that no schedule starts; with `trim` here no run trims a long control topic either. `calve maintain` and
    the jobs in Dagster do them all the same."""

    compact: Compact = Compact()
    """Join small files, and take out of files what many deletes are for."""

    manifests: Manifests = Manifests()
    """Rewrite manifests, of which each batch adds one per table."""

    expire: Expire = Expire()
    """Expire old snapshots, with the files that only they name."""

    orphans: Orphans = Orphans()
    """Delete files that nothing names; a table's first run only lists them."""

"""The section `maintenance` of a pipeline file, as far as it is the same for every kind."""

from __future__ import annotations

from pydantic import Field

from calve.sink_core.config.fields import Cron
from calve.sink_core.config.model import Model
from calve.sink_core.config.units import DAY, HOUR, Duration


class Trim(Model):
    """Delete events of the control topic that no table needs any more."""

    cron: Cron | None = None
    """When, five cron fields. Default: once a day, at a minute of the pipeline's own."""

    older_than: Duration = 1 * DAY
    """Events younger than this stay, for people to look at."""


class KeepAlive(Model):
    """Commit the positions again, so that the broker does not forget those of an idle or paused pipeline."""

    cron: Cron | None = None
    """When, five cron fields. Default: once a day, at a minute of the pipeline's own."""


class Maintenance(Model):
    """Maintenance of the control topic and of the positions."""

    trim: Trim = Trim()
    """Delete events of the control topic that no table needs any more."""

    keep_alive: KeepAlive = KeepAlive()
    """Commit the positions again, so that the broker does not forget those of an idle or paused pipeline."""

    max_duration: Duration = Field(default=1 * HOUR, gt=0)
    """Dagster ends a maintenance run that takes longer than this."""

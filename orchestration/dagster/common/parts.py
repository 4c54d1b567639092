"""What a kind of pipeline gives to Dagster, so that sensor, trigger and build need to know none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import dagster as dg

from calve.orchestration.dagster.common.names import job_name, run_tags
from calve.orchestration.dagster.common.signs import in_process
from calve.orchestration.dagster.common.trigger import Sight
from calve.sink_core.config.effective import Pipeline

if TYPE_CHECKING:
    from calve.orchestration.compat import UnresolvedAssetJobDefinition
    from calve.orchestration.dagster.common.checks import KeyOf
    from calve.sink_core.control.state import AnyState

    AssetJob: TypeAlias = UnresolvedAssetJobDefinition

MARGIN_S = 1800
"""A run may last this much longer than it should: what is begun within its time ends when it ends."""


class Watch(Protocol):
    """Looks at what one pipeline reads and has published, from the code server, for as long as that lives."""

    def look(self) -> Sight:
        """What is pending. Raises a CalveError if it can't be seen in a few seconds."""
        ...

    def observations(self) -> Sequence[dg.AssetObservation]:
        """What the last look saw, for the pages of the assets that others write."""
        ...

    def through_s(self) -> Mapping[str, float]:
        """By subject of the check `freshness` (`common/arrivals.py`) up to when all has arrived, by this host's clock,
        as far as looks know.
        """
        ...


class StateWatch(Protocol):
    """Knows what the control log says."""

    def state(self) -> AnyState | None:
        """The control log's fold as of now; None if the pipeline has never run."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A pipeline's definitions as its kind makes them; `build` adds the sensor and the Spark resource.

    The sensor starts `moves`, whose runs are of `stage`, when `watch` sees records pending in `reads`, which is a part
    of a sentence. `key_of` gives the asset of a check's subject, None where there are no checks; `fresh` are the
    subjects of the check `freshness`, as `Watch.through_s` has them.
    """

    stage: str
    moves: AssetJob
    watch: Watch
    reads: str
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]
    checks: Sequence[dg.AssetChecksDefinition] = ()
    key_of: KeyOf | None = None
    fresh: Sequence[str] = ()
    jobs: Sequence[dg.JobDefinition | AssetJob] = ()
    schedules: Sequence[dg.ScheduleDefinition] = ()


def asset_job(
    pipeline: Pipeline, stage: str, selection: dg.AssetSelection, description: str, *, within_s: float = 0
) -> AssetJob:
    """A job of a stage, ended by Dagster when it takes much longer than `within_s`."""
    return dg.define_asset_job(
        job_name(pipeline, stage),
        selection=selection,
        description=description,
        tags={**run_tags(pipeline, stage), "dagster/max_runtime": str(MARGIN_S + int(within_s))},
        executor_def=in_process,
    )

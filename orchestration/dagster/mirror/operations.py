"""What an operator does with a mirror by hand, beside pausing and answering findings."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.names import POSITIONS
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.operations.looking import ProofConfig, positions_table, proving
from calve.orchestration.dagster.mirror import checks, verdicts
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.control.slots.plane import SlotPlane
    from calve.sink_core.mirror.plane import MirrorPlane


def verify(pipeline: MirrorPipeline) -> "Operation[SlotPlane[Any, Any], ProofConfig]":
    """Proves that every source offset was copied once."""
    return proving(
        f"Proves from control topic and positions, with deep from the records of both clusters, that {pipeline.name} "
        "copied every source offset once.",
        "calve.sink_core.mirror.verify:verify",
        verdicts.chain,
        partial(checks.evaluations, pipeline),
    )


def positions(pipeline: MirrorPipeline) -> "Operation[MirrorPlane, dg.Config]":
    """The next offsets to copy, beside what the source holds."""

    def work(at: "Work[MirrorPlane]", _config: dg.Config) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.mirror.status import status

        yield from ()
        report = status(at.plane)
        at.say(f"{len(report.partitions)} partitions, {report.lag:,} records pending")
        return {"pending records": report.lag, "positions": positions_table(report.partitions)}

    return Operation(
        POSITIONS,
        f"Shows the next offset that {pipeline.name} copies of each partition.",
        None,
        {},
        work,
        only_looks=True,
    )

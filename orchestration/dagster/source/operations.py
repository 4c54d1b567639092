"""What an operator does with a source by hand, beside pausing."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.names import POSITIONS
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.operations.looking import ProofConfig, proving
from calve.orchestration.dagster.source import checks
from calve.sink_core.config.source_pipeline import SourcePipeline

if TYPE_CHECKING:
    from calve.sink_core.control.slots.plane import SlotPlane
    from calve.sink_core.source.plane import SourcePlane


def verify(pipeline: SourcePipeline) -> "Operation[SlotPlane[Any, Any], ProofConfig]":
    """Proves that every row was sent once."""
    return proving(
        f"Proves from control topic and source offsets, with deep by counting the records, that {pipeline.name} sent "
        "every row once.",
        "calve.sink_core.source.verify:verify",
        checks.chain,
        partial(checks.evaluations, pipeline),
    )


def positions(pipeline: SourcePipeline) -> "Operation[SourcePlane, dg.Config]":
    """The source offsets, as they are stored."""

    def work(at: "Work[SourcePlane]", _config: dg.Config) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.source.positions import look

        yield from ()
        rows = [
            {"partition": str(each.partition), "offset": str(each.offset), "by the control log": str(each.logged)}
            for each in look(at.plane)
        ]
        at.say(f"{len(rows):,} source partitions")
        return {"positions": dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows])}

    return Operation(POSITIONS, f"Shows the source offsets of {pipeline.name}.", None, {}, work, only_looks=True)

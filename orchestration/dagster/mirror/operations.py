"""What an operator does with a mirror by hand, beside pausing and answering findings."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.names import POSITIONS
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.operations.looking import ProofConfig, positions_table, proving
from calve.orchestration.dagster.common.verdicts import Verdict
from calve.orchestration.dagster.mirror import checks, verdicts
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.mirror.plane import MirrorPlane


def verify(pipeline: MirrorPipeline) -> "Operation[MirrorPlane, ProofConfig]":
    """Proves that every source offset was copied once."""

    def prove(at: "Work[MirrorPlane]", deep: bool) -> tuple[Verdict, list[dict[str, Any]]]:
        from calve.sink_core.mirror.verify import verify

        at.plane.read_only()
        proof = verify(at.plane, deep=deep, on_progress=at.say)
        rows = [
            {
                "topic": part.at.topic,
                "partition": part.at.partition,
                "records": part.records,
                "read on the target": part.checked,
                "read on the source": part.source_checked,
                "expired": part.expired,
            }
            for part in proof.partitions
            if deep
        ]
        return verdicts.chain(proof), rows

    return proving(
        f"Proves from control topic and positions, with deep from the records of both clusters, that {pipeline.name} "
        "copied every source offset once.",
        prove,
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

    return Operation(POSITIONS, f"Shows the next offset that {pipeline.name} copies of each partition.", None, {}, work)

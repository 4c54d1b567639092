"""What an operator does with a mirror by hand, beside pausing and answering findings, and its maintenance."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.names import POSITIONS, VERIFY
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.operations.looking import positions_table, proof_metadata
from calve.orchestration.dagster.common.operations.maintenance import LogTaskConfig, Maintaining
from calve.orchestration.dagster.mirror import checks, verdicts
from calve.orchestration.dagster.mirror.plane import run_plane
from calve.sink_core.config.mirror_pipeline import MirrorPipeline

if TYPE_CHECKING:
    from calve.sink_core.control.maintenance import LogTask
    from calve.sink_core.control.maintenance_report import MaintenanceReport
    from calve.sink_core.mirror.plane import MirrorPlane

TASKS: "dict[str, LogTask]" = {"trim": "trim", "keep_alive": "keep_alive"}


class VerifyConfig(dg.Config):
    """How much to prove."""

    deep: bool = Field(default=False, description="Read the records of both clusters again. Takes long.")


def maintaining() -> "Maintaining[MirrorPlane]":
    """Of the control topic and of the positions; a mirror has nothing else."""
    return Maintaining(tuple(TASKS), run_plane, _run)


def _run(task: str, at: "Work[MirrorPlane]", config: LogTaskConfig) -> "MaintenanceReport":
    from calve.sink_core.control.maintenance import run_log_task

    return run_log_task(TASKS[task], at.plane, dry_run=config.dry_run, on_progress=at.say)


def verify(pipeline: MirrorPipeline) -> "Operation[MirrorPlane, VerifyConfig]":
    """Proves that every source offset was copied once. The run is red if it was not."""

    def work(at: "Work[MirrorPlane]", config: VerifyConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.mirror.verify import verify as prove

        at.plane.read_only()
        proof = prove(at.plane, deep=config.deep, on_progress=at.say)
        verdict = verdicts.chain(proof)
        at.say(verdict.text)
        yield from checks.evaluations(pipeline, [verdict])
        rows = [
            dg.TableRecord(
                {
                    "topic": part.at.topic,
                    "partition": part.at.partition,
                    "records": part.records,
                    "read on the target": part.checked,
                    "read on the source": part.source_checked,
                    "expired": part.expired,
                }
            )
            for part in proof.partitions
        ]
        shown = {"read again": dg.MetadataValue.table(rows)} if proof.deep and rows else {}
        return proof_metadata(verdict, proven=proof.proven, deep=proof.deep, **shown)

    return Operation(
        VERIFY,
        f"Proves from control topic and positions, with deep from the records of both clusters, that {pipeline.name} "
        "copied every source offset once.",
        VerifyConfig,
        {"deep": False},
        work,
        lane=VERIFY,
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

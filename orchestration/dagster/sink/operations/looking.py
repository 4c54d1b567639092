"""Jobs that look and change nothing: the proof, the positions."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.names import POSITIONS, VERIFY
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.operations.looking import positions_table, proof_metadata
from calve.orchestration.dagster.sink import checks, verdicts
from calve.orchestration.times import moment_or_age_ms
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session


class VerifyConfig(dg.Config):
    """How much to prove."""

    deep: bool = Field(
        default=False, description="Look at each row's source offset, and count again in Kafka. Takes long."
    )
    since: str = Field(
        default="",
        description="Only batches planned since then: ISO 8601 with a zone, or an age such as 7d. Empty: all.",
    )


def verify(pipeline: SinkPipeline) -> "Operation[Session, VerifyConfig]":
    """Proves that every source offset was accounted for once. The run is red if it was not."""

    def work(at: "Work[Session]", config: VerifyConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.sink.verify.proof import verify as prove

        since_ms = moment_or_age_ms(config.since, "since", datetime.now(UTC)) if config.since else None
        report = prove(at.plane, deep=config.deep, since_ms=since_ms, on_progress=at.say)
        verdict = verdicts.proof(pipeline, report)
        at.say(verdict.text)
        yield from checks.evaluations(pipeline, [verdict])
        return proof_metadata(verdict, proven=report.proven, deep=report.deep)

    return Operation(
        VERIFY,
        f"Proves from ledger, control topic and tables that {pipeline.name} accounted for every source offset once.",
        VerifyConfig,
        {"deep": False, "since": "7d"},
        work,
        lane=VERIFY,
        only_looks=True,
    )


def positions(pipeline: SinkPipeline) -> "Operation[Session, dg.Config]":
    """The next offsets to read, beside what Kafka holds; and the file that another pipeline could begin with."""

    def work(at: "Work[Session]", _config: dg.Config) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.sink import positions_file
        from calve.sink_core.sink.status import status

        yield from ()
        exported = positions_file.export(at.plane)
        report = status(at.plane)
        at.say(f"{len(report.partitions)} partitions, {report.lag:,} records pending")
        return {
            "pending records": report.lag,
            "positions": positions_table(report.partitions),
            "export": dg.MetadataValue.json(exported.model_dump(mode="json")),
        }

    return Operation(
        POSITIONS,
        f"Shows the next offset that {pipeline.name} reads of each partition, and the file that `calve positions "
        "import` takes.",
        None,
        {},
        work,
        only_looks=True,
    )

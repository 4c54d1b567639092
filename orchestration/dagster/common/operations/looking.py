"""What jobs that only look have in common: positions as a table, and the end of a proof."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.checks import metadata_of
from calve.orchestration.dagster.common.names import VERIFY
from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.common.verdicts import NOT_RUN, Verdict
from calve.sink_core.finding import NOTHING

if TYPE_CHECKING:
    from calve.sink_core.control.slots.plane import SlotPlane
    from calve.sink_core.control.slots.proof import PartitionProof, Proof
    from calve.sink_core.control.status import PartitionStatus


def positions_table(partitions: Sequence[PartitionStatus]) -> dg.TableMetadataValue:
    """A row for each partition; position -1 of one that has none."""
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "topic": part.topic,
                    "partition": part.partition,
                    "position": -1 if part.position is None else part.position,
                    "log start": part.log_start,
                    "end": part.end,
                    "pending": part.lag,
                }
            )
            for part in partitions
        ]
    )


def proof_metadata(verdict: Verdict, *, proven: bool, deep: bool, **more: Any) -> dict[str, Any]:
    """What the run of a proof shows. Raises Dagster's Failure, with the same, unless it is `proven`."""
    metadata = {"proven": proven, "deep": deep, **metadata_of(verdict), **more}
    if not proven:
        raise dg.Failure(verdict.text, metadata=metadata, allow_retries=False)
    return metadata


class ProofConfig(dg.Config):
    """How much to prove."""

    deep: bool = Field(default=False, description="Read the records again. Takes long.")


def proving(
    description: str,
    verify: str,
    chain: Callable[[Any], Verdict],
    evaluations: Callable[[Iterable[Verdict]], Iterable[Told]],
) -> Operation[SlotPlane[Any, Any], ProofConfig]:
    """The job of the proof of a kind with slots, which is `verify`, as `module:function`: imported in the run. The run
    is red if it does not hold.
    """

    def work(at: Work[SlotPlane[Any, Any]], config: ProofConfig) -> Generator[Told, None, dict[str, Any]]:
        if not at.plane.has_run():
            raise dg.Failure(NOT_RUN, metadata={"proven": False, "verdict": NOTHING}, allow_retries=False)
        proof: Proof[Any] = resolve_name(verify)(at.plane, deep=config.deep, on_progress=at.say)
        verdict = chain(proof)
        at.say(verdict.text)
        yield from evaluations([verdict])
        rows = [_row(part) for part in proof.partitions if proof.deep]
        shown = {"read again": dg.MetadataValue.table(rows)} if rows else {}
        return proof_metadata(verdict, proven=proof.proven, deep=proof.deep, **shown)

    return Operation(VERIFY, description, ProofConfig, {"deep": False}, work, lane=VERIFY, only_looks=True)


def _row(part: PartitionProof) -> dg.TableRecord:
    counts = {"records": part.records, **part.counted}
    return dg.TableRecord({"topic": part.at.topic, "partition": part.at.partition, **counts})

"""What jobs that only look have in common: positions as a table, and the end of a proof."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.checks import metadata_of
from calve.orchestration.dagster.common.names import VERIFY
from calve.orchestration.dagster.common.operations.job import Operation, P, Told, Work
from calve.orchestration.dagster.common.verdicts import Verdict

if TYPE_CHECKING:
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


Prove = Callable[[Work[P], bool], tuple[Verdict, Sequence[Mapping[str, Any]]]]
"""What a kind's proof says, and what was read again for it: a row of each partition, none unless it was deep."""


def proving(
    description: str, prove: Prove[P], evaluations: Callable[[Iterable[Verdict]], Iterable[Told]]
) -> Operation[P, ProofConfig]:
    """The job of a kind's proof. The run is red if it does not hold."""

    def work(at: Work[P], config: ProofConfig) -> Generator[Told, None, dict[str, Any]]:
        verdict, read = prove(at, config.deep)
        at.say(verdict.text)
        yield from evaluations([verdict])
        rows = [dg.TableRecord(dict(row)) for row in read]
        shown = {"read again": dg.MetadataValue.table(rows)} if rows else {}
        return proof_metadata(verdict, proven=verdict.passed, deep=config.deep, **shown)

    return Operation(VERIFY, description, ProofConfig, {"deep": False}, work, lane=VERIFY)

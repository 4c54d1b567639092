"""What jobs that only look have in common: positions as a table, and the end of a proof."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.checks import metadata_of

if TYPE_CHECKING:
    from calve.orchestration.dagster.common.verdicts import Verdict
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

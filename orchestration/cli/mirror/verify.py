"""What `calve verify` says of a mirror."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from calve.orchestration.cli.proof import Told, prove

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.mirror.verify import MirrorProof


def verify(pipeline: MirrorPipeline, *, deep: bool, since_ms: int | None, as_json: bool) -> None:
    """The proof by control topic and positions, with `deep` by the records of both clusters."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.verify import verify as body

    prove(pipeline, partial(MirrorPlane, pipeline), body, _told, deep=deep, since_ms=since_ms, as_json=as_json)


def _told(proof: MirrorProof) -> Told:
    columns = ["remote topic", "partition", "records", "next source offset"]
    if proof.deep:
        columns += ["read on the target", "read on the source", "expired"]
    document = {
        "records": proof.records,
        "positions_set": proof.moves,
        "partitions": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "records": each.records,
                "next_source_offset": each.position,
                "records_read_on_target": each.checked,
                "records_read_on_source": each.source_checked,
                "records_expired": each.expired,
                "faults": each.faults,
            }
            for each in proof.partitions
        ],
    }
    return Told(
        [f"positions were set by {move}" for move in proof.moves],
        columns,
        f"{proof.records:,} records in {len(proof.partitions):,} partitions",
        "by the records of both clusters" if proof.deep else "by control topic and positions; --deep reads the records",
        document,
    )

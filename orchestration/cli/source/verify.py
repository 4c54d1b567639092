"""What `calve verify` says of a source."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from calve.orchestration.cli.proof import Told, prove
from calve.orchestration.wording import counted

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.source.verify import SourceProof


def verify(pipeline: SourcePipeline, *, deep: bool, since_ms: int | None, as_json: bool) -> None:
    """The proof by control topic and offsets topic, with `deep` by the records of the topics."""
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.verify import verify as body

    prove(pipeline, partial(SourcePlane, pipeline), body, _told, deep=deep, since_ms=since_ms, as_json=as_json)


def _told(proof: SourceProof) -> Told:
    others = sum(each.others for each in proof.partitions)
    offsets = counted(proof.source_partitions, "source partition", "source partitions")
    columns = ["topic", "partition", "records"]
    if proof.deep:
        columns += ["read", "expired", "of others"]
    document = {
        "records": proof.records,
        "source_partitions": proof.source_partitions,
        "partitions": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "records": each.records,
                "records_read": each.checked,
                "records_expired": each.expired,
                "records_of_others": each.others,
                "faults": each.faults,
            }
            for each in proof.partitions
        ],
    }
    return Told(
        [f"{counted(others, 'record', 'records')} in these topics are not of this source"] if others else [],
        columns,
        f"{counted(proof.records, 'record', 'records')} sent in all, {offsets}",
        "by the records of the topics"
        if proof.deep
        else "by control topic and source offsets; --deep counts the records",
        document,
    )

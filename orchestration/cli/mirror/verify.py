"""What `calve verify` does with a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from calve.orchestration.cli.output import say, say_json, say_table, working
from calve.sink_core.error_codes.files import NOT_RUN_YET
from calve.sink_core.errors import EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.mirror.verify import PartitionProof, Proof

_MOST_ROWS = 50


def verify(pipeline: MirrorPipeline, *, deep: bool, since_ms: int | None, as_json: bool) -> None:
    """The proof by control topic and positions, with `deep` by the records of both clusters."""
    from calve.sink_core.mirror.plane import MirrorPlane
    from calve.sink_core.mirror.verify import verify as prove

    if since_ms is not None:
        raise typer.BadParameter("a mirror is proven from its start", param_hint="--since")
    with working("connecting") as spinner, MirrorPlane(pipeline) as plane:
        if not plane.read_only():
            raise ConfigError(f"pipeline {pipeline.name} has not run yet", hint="calve run FILE", code=NOT_RUN_YET)
        proof = prove(plane, deep=deep, on_progress=spinner.update)
    if as_json:
        say_json(_document(proof))
    else:
        _say(proof)
    if not proof.proven:
        raise typer.Exit(EXIT_STOPPED)


def _say(proof: Proof) -> None:
    for fault in [*proof.faults, *(f"{each.at}: {fault}" for each in proof.partitions for fault in each.faults)]:
        say(fault, style="red")
    for move in proof.moves:
        say(f"positions were set by {move}", style="yellow")
    columns = ["remote topic", "partition", "records", "next source offset"]
    if proof.deep:
        columns += ["read on the target", "read on the source", "expired"]
    shown = proof.partitions[:_MOST_ROWS]
    say_table("", columns, [_row(each, deep=proof.deep) for each in shown])
    if len(proof.partitions) > len(shown):
        say(f"and {len(proof.partitions) - len(shown):,} partitions more; --json has all")
    say(f"{proof.records:,} records in {len(proof.partitions):,} partitions")
    how = (
        "by the records of both clusters" if proof.deep else "by control topic and positions; --deep reads the records"
    )
    say(f"proven {how}" if proof.proven else "NOT proven", style="green" if proof.proven else "red")


def _row(each: PartitionProof, *, deep: bool) -> list[str]:
    numbers = [each.records, each.position]
    numbers += [each.checked, each.source_checked, each.expired] if deep else []
    return [each.at.topic, str(each.at.partition), *(f"{number:,}" for number in numbers)]


def _document(proof: Proof) -> dict[str, Any]:
    partitions = [
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
    ]
    said = {"proven": proof.proven, "deep": proof.deep, "records": proof.records}
    return {**said, "faults": proof.faults, "positions_set": proof.moves, "partitions": partitions}

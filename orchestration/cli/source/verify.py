"""What `calve verify` does with a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from calve.orchestration.cli.output import say, say_json, say_table, working
from calve.orchestration.wording import counted
from calve.sink_core.error_codes.files import NOT_RUN_YET
from calve.sink_core.errors import EXIT_STOPPED, ConfigError

if TYPE_CHECKING:
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.source.verify import PartitionProof, Proof

_MOST_ROWS = 50


def verify(pipeline: SourcePipeline, *, deep: bool, since_ms: int | None, as_json: bool) -> None:
    """The proof by control topic and offsets topic, with `deep` by the records of the topics."""
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.verify import verify as prove

    if since_ms is not None:
        raise typer.BadParameter("a source is proven from its start", param_hint="--since")
    with working("connecting") as spinner, SourcePlane(pipeline) as plane:
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
    if others := sum(each.others for each in proof.partitions):
        say(f"{counted(others, 'record', 'records')} in these topics are not of this source", style="yellow")
    columns = ["topic", "partition", "records"] + (["read", "expired", "of others"] if proof.deep else [])
    shown = proof.partitions[:_MOST_ROWS]
    say_table("", columns, [_row(each, deep=proof.deep) for each in shown])
    if len(proof.partitions) > len(shown):
        say(f"and {len(proof.partitions) - len(shown):,} partitions more; --json has all")
    offsets = counted(proof.source_partitions, "source partition", "source partitions")
    say(f"{counted(proof.records, 'record', 'records')} sent in all, {offsets}")
    how = (
        "by the records of the topics"
        if proof.deep
        else "by control topic and source offsets; --deep counts the records"
    )
    say(f"proven {how}" if proof.proven else "NOT proven", style="green" if proof.proven else "red")


def _row(each: PartitionProof, *, deep: bool) -> list[str]:
    numbers = [each.records, *([each.checked, each.expired, each.others] if deep else [])]
    return [each.at.topic, str(each.at.partition), *(f"{number:,}" for number in numbers)]


def _document(proof: Proof) -> dict[str, Any]:
    partitions = [
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
    ]
    said = {"proven": proof.proven, "deep": proof.deep, "records": proof.records}
    return {**said, "source_partitions": proof.source_partitions, "faults": proof.faults, "partitions": partitions}

"""What `calve verify` does with kinds that have slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from calve.orchestration.cli.output import say, say_json, say_table, say_verdict, working
from calve.sink_core.errors import EXIT_STOPPED
from calve.sink_core.finding import NOTHING

if TYPE_CHECKING:
    from calve.sink_core.config.effective import Pipeline
    from calve.sink_core.control.slots.plane import SlotPlane
    from calve.sink_core.control.slots.proof import PartitionProof, Proof

_MOST_ROWS = 50

AnyProof = TypeVar("AnyProof", bound="Proof[Any]")


@dataclass(frozen=True, slots=True)
class Told:
    """What a kind says of its proof: `notes` first, `columns` above what is known of each partition, all in all
    `total`, and `how` it was proven. `document` adds to the JSON document.
    """

    notes: Sequence[str]
    columns: Sequence[str]
    total: str
    how: str
    document: dict[str, Any]


def prove(
    pipeline: Pipeline,
    opens: Callable[[], SlotPlane[Any, Any]],
    verify: Callable[..., AnyProof],
    told: Callable[[AnyProof], Told],
    *,
    deep: bool,
    since_ms: int | None,
    as_json: bool,
) -> None:
    """Prove, by what the kind calls `verify`, and say what came of it. Raises Exit unless it is proven."""
    if since_ms is not None:
        raise typer.BadParameter(f"a {pipeline.kind} is proven from its start", param_hint="--since")
    with working("connecting") as spinner, opens() as plane:
        proof = verify(plane, deep=deep, on_progress=spinner.update) if plane.has_run() else None
    if proof is None:
        say_json({"proven": False, "verdict": NOTHING, "deep": deep}) if as_json else say_verdict(NOTHING, "")
        raise typer.Exit(EXIT_STOPPED)
    said = told(proof)
    if as_json:
        verdict = {"proven": proof.proven, "verdict": proof.verdict, "deep": proof.deep, "faults": proof.faults}
        say_json({**verdict, "not_checked": [asdict(each) for each in proof.not_checked], **said.document})
    else:
        _say(proof, said)
    if not proof.proven:
        raise typer.Exit(EXIT_STOPPED)


def _say(proof: Proof[Any], said: Told) -> None:
    for fault in proof.every_fault:
        say(fault, style="red")
    for note in said.notes:
        say(note, style="yellow")
    shown = proof.partitions[:_MOST_ROWS]
    say_table("", list(said.columns), [_row(each, deep=proof.deep) for each in shown])
    if len(proof.partitions) > len(shown):
        say(f"and {len(proof.partitions) - len(shown):,} partitions more; --json has all")
    for part in proof.not_checked:
        say(f"not checked: {part.subject}: {part.why}", style="yellow")
    say(said.total)
    say_verdict(proof.verdict, f"proven {said.how}")


def _row(each: PartitionProof, *, deep: bool) -> list[str]:
    numbers = [*each.known.values(), *(each.counted.values() if deep else ())]
    return [each.at.topic, str(each.at.partition), *(f"{number:,}" for number in numbers)]

"""Asset checks of a source: after each run within it, and on a schedule in a job of their own."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from calve.orchestration.dagster.common import verdicts
from calve.orchestration.dagster.common.checks import check_specs, checks_op, told_by_run
from calve.orchestration.dagster.common.topics import copy_key
from calve.orchestration.dagster.common.verdicts import FRESHNESS, LAG, Check, Verdict, blockers_check, judged, lag
from calve.orchestration.dagster.source.plane import run_plane
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.wording import bytes_text

if TYPE_CHECKING:
    from calve.sink_core.source.plane import SourcePlane
    from calve.sink_core.source.status import SourceStatus
    from calve.sink_core.source.verify import SourceProof


@dataclass(frozen=True, slots=True)
class Health:
    """What the checks look at."""

    pipeline: SourcePipeline
    report: "SourceStatus"


def checks_of(pipeline: SourcePipeline) -> dg.AssetChecksDefinition:
    """All of them."""
    specs = check_specs(pipeline, ((check, copy_key(pipeline.name)) for check in CHECKS))
    return checks_op(pipeline, specs, run_plane, partial(look, pipeline), lambda _subject: copy_key(pipeline.name))


def look(pipeline: SourcePipeline, plane: "SourcePlane") -> Iterator[Verdict]:
    """Every verdict; the chain once there is one."""
    from calve.sink_core.source.status import status
    from calve.sink_core.source.verify import verify

    yield from judged(CHECKS, Health(pipeline, status(plane)), lambda _check: [None])
    if plane.log.state.last_batch_id is not None:
        yield chain(verify(plane))


def evaluations(pipeline: SourcePipeline, found: Iterable[Verdict]) -> Iterator[dg.AssetCheckEvaluation]:
    """The verdicts as events of a run that moves something."""
    return told_by_run(pipeline, found, lambda _subject: copy_key(pipeline.name))


def freshness(report: "SourceStatus", most_s: float | None) -> Verdict:
    """The age of the oldest pending row; where only its bound is known, a warning is all that it gives."""
    age_s = report.oldest_age_s
    if age_s is None:
        nothing = (
            "nothing is pending"
            if not report.lag
            else "nothing was read yet, and nobody knows since when rows are pending"
        )
        return Verdict(True, nothing, {"age_s": 0.0})
    objective = "" if most_s is None else f", objectives.freshness is {most_s:g} s"
    at_most = "at most " if report.age_is_bound else ""
    text = f"the oldest pending row is {at_most}{age_s:,.1f} s old{objective}"
    passed = most_s is None or age_s <= most_s
    return Verdict(passed, text, {"age_s": round(age_s, 3)}, warning=report.age_is_bound)


def chain(proof: "SourceProof") -> Verdict:
    """Each source offset went on where the one before ended, and is the one in the offsets topic."""
    numbers = {"records": proof.records, "source_partitions": proof.source_partitions}
    return verdicts.chain(proof, "every row was sent once", numbers)


def held(report: "SourceStatus") -> Verdict:
    """What the system keeps for this source; of interest for its course."""
    size = report.held_bytes
    text = "the system keeps nothing for this source" if size is None else f"the system keeps {bytes_text(size)} for it"
    return Verdict(True, text, {} if size is None else {"held_bytes": size})


def findings(report: "SourceStatus") -> Verdict:
    text = "\n".join(report.findings) or f"none, with {len(report.offsets):,} source partitions"
    return Verdict(not report.findings, text, {"findings": len(report.findings)})


CHAIN: Check[Health] = Check(
    verdicts.CHAIN,
    "copy",
    "Each source offset went on where the one before ended, and is the one in the offsets topic.",
    "what `calve verify` checks without `--deep` does not hold",
)
CHECKS: tuple[Check[Health], ...] = (
    Check(
        LAG,
        "copy",
        "Records that wait, against objectives.lag.",
        "more records wait than `objectives.lag`",
        lambda seen, _subject: lag(seen.report.lag, seen.pipeline.config.objectives.lag),
    ),
    Check(
        FRESHNESS,
        "copy",
        "Age of the oldest pending row, against objectives.freshness.",
        "the oldest pending row is older than `objectives.freshness` (warning: rows are pending, and nothing was read "
        "for so long)",
        lambda seen, _subject: freshness(seen.report, seen.pipeline.config.objectives.freshness),
    ),
    Check(
        "held",
        "copy",
        "What the system keeps until this source has read it.",
        "never: its course tells",
        lambda seen, _subject: held(seen.report),
    ),
    blockers_check("copy", lambda seen: seen.report.blockers),
    Check(
        "findings",
        "copy",
        "Stored states that contradict the world: a run would stop on them.",
        "`calve status` shows a finding",
        lambda seen, _subject: findings(seen.report),
    ),
    CHAIN,
)
"""Every check of a source. Dagster's specs are made of it, and docs/dagster.md has its rows."""

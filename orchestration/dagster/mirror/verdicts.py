"""What the checks say of a mirror. Pure: a status report or a proof in, verdicts out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from calve.orchestration.dagster.common import verdicts
from calve.orchestration.dagster.common.verdicts import (
    FRESHNESS,
    LAG,
    SHOWN,
    Check,
    Verdict,
    blockers_check,
    judged,
    lag,
    retention,
)
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.wording import counted

if TYPE_CHECKING:
    from calve.sink_core.mirror.status import CopiedTopic, MirrorStatus
    from calve.sink_core.mirror.verify import MirrorProof


@dataclass(frozen=True, slots=True)
class Health:
    """What the checks but the proof look at."""

    pipeline: MirrorPipeline
    report: MirrorStatus


def health(pipeline: MirrorPipeline, report: MirrorStatus) -> list[Verdict]:
    """Every verdict but the proof."""
    return [*judged(CHECKS, Health(pipeline, report), lambda _check: [None])]


def freshness(topics: tuple[CopiedTopic, ...], most_s: float | None) -> Verdict:
    """The age of the oldest record that is not on the target."""
    ages = {topic.topic: topic.oldest_age_s for topic in topics if topic.oldest_age_s is not None}
    if not ages:
        waiting = sum(topic.lag for topic in topics)
        said = f"{waiting:,} offsets are pending, and none of a record that could be read"
        return Verdict(True, said if waiting else "everything there is has been copied", {"age_s": 0.0})
    oldest, age_s = max(ages.items(), key=lambda item: item[1])
    objective = "" if most_s is None else f", objectives.freshness is {most_s:g} s"
    text = f"{oldest}: the oldest record that is not copied is {age_s:,.1f} s old{objective}"
    return Verdict(most_s is None or age_s <= most_s, text, {"age_s": round(age_s, 3)})


def chain(proof: MirrorProof) -> Verdict:
    """Each copied range begins where the one before ended, and the positions are those of the control topic."""
    numbers = {"records": proof.records, "partitions": len(proof.partitions)}
    return verdicts.chain(proof, "every offset was copied once", numbers, positions_set=list(proof.moves))


def foreign_records(report: MirrorStatus) -> Verdict:
    """Somebody else writes to a remote topic."""
    foreign = {topic.remote: topic.foreign for topic in report.topics if topic.foreign}
    listed = "; ".join(
        f"{remote} ({counted(number, 'partition', 'partitions')})" for remote, number in [*foreign.items()][:SHOWN]
    )
    told = f"others have written behind what was copied to {listed}"
    text = told if foreign else "nobody has written behind what was copied last"
    return Verdict(not foreign, text, {"topics": len(foreign), "partitions": sum(foreign.values())})


def findings(report: MirrorStatus) -> Verdict:
    text = "\n".join(report.findings) or f"none, with {counted(len(report.topics), 'topic', 'topics')} copied"
    return Verdict(not report.findings, text, {"findings": len(report.findings)})


CHAIN: Check[Health] = Check(
    verdicts.CHAIN,
    "copy",
    "Each copied range begins where the one before it ended; the positions are those of the control topic.",
    "what `calve verify` checks without `--deep` does not hold",
)
CHECKS: tuple[Check[Health], ...] = (
    Check(
        LAG,
        "copy",
        "Records that wait, against objectives.lag.",
        "more records wait than `objectives.lag`",
        lambda seen, _remote: lag(seen.report.lag, seen.pipeline.config.objectives.lag),
    ),
    Check(
        FRESHNESS,
        "copy",
        "Age of the oldest record that is not copied, against objectives.freshness.",
        "the oldest record that is not copied is older than `objectives.freshness`",
        lambda seen, _remote: freshness(seen.report.topics, seen.pipeline.config.objectives.freshness),
    ),
    Check(
        "retention",
        "copy",
        "How near deletion by retention is to records that were not copied yet.",
        "less than a tenth of a source partition's log lies before the next record to copy (warning), or pending "
        "records are deleted",
        lambda seen, _remote: retention(seen.report.partitions),
    ),
    Check(
        "foreign_records",
        "copy",
        "Records of remote topics that this mirror did not write.",
        "a remote topic has a record behind the last one that was copied, which this mirror did not write",
        lambda seen, _remote: foreign_records(seen.report),
    ),
    blockers_check("copy", lambda seen: seen.report.blockers),
    Check(
        "findings",
        "copy",
        "Stored states that contradict the world: a run would stop on them.",
        "`calve status` shows a finding",
        lambda seen, _remote: findings(seen.report),
    ),
    CHAIN,
)
"""Every check of a mirror. Dagster's specs are made of it, and docs/dagster.md has its rows."""

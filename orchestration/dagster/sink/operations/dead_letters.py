"""The dead letters, as `calve dead-letters` has them: the newest to look at, and another try for all."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.sink import metadata, table_page
from calve.orchestration.dagster.sink.names import DEAD_LETTERS, REPLAY_DEAD_LETTERS
from calve.orchestration.times import moment_or_age_ms, offset_range
from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import RetriableError

if TYPE_CHECKING:
    from calve.sink_core.sink.dead_letters.jobs import DeadLetterReport
    from calve.sink_core.sink.loop.session import Session


class ListConfig(dg.Config):
    """Which dead letters to show."""

    limit: int = Field(default=20, ge=0, le=200, description="Show so many at most, the newest first.")
    topic: str = Field(default="", description="Only of this topic. Empty: of all.")
    since: str = Field(
        default="", description="Only with a later timestamp: ISO 8601 with a zone, or an age such as 7d. Empty: all."
    )


class ReplayConfig(dg.Config):
    """Which dead letters to try again."""

    ranges: list[str] = Field(
        default=[], description="Only those of these offsets, each TOPIC/PARTITION:START-END. Empty: all."
    )


def listing(pipeline: SinkPipeline) -> "Operation[Session, ListConfig]":
    """Shows the newest, and how many there are of each error."""

    def work(at: "Work[Session]", config: ListConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.sink.dead_letters.listing import letters

        yield from ()
        since_ms = moment_or_age_ms(config.since, "since", datetime.now(UTC)) if config.since else None
        found = letters(at.plane, limit=config.limit, topic=config.topic or None, since_ms=since_ms)
        at.say(f"{found.table}: {found.total:,} dead letters")
        return {"dead letters": found.total, **metadata.of_letters(found)}

    return Operation(
        DEAD_LETTERS,
        f"Shows the newest dead letters of {pipeline.name} with their errors, and how many there are of each error. Of "
        "values the beginning is shown, without what is named like a secret.",
        ListConfig,
        {"limit": 20},
        work,
        only_looks=True,
    )


def replay(pipeline: SinkPipeline) -> "Operation[Session, ReplayConfig]":
    """Has no schedule: what spoiled them is mended first."""

    def work(at: "Work[Session]", config: ReplayConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.control.decision import Verdict
        from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs

        wanted = [offset_range(text, "ranges") for text in config.ranges]
        at.plane.bind_published()
        if held := at.held():
            return held
        report = DeadLetterJobs(at.plane, on_progress=at.progress).replay(wanted)
        for landed in report.commits:
            yield table_page.landed(pipeline, landed)
        at.say(f"{report.table}: {report.ended}; {report.still_bad:,} still bad")
        if report.verdict is Verdict.STALE:
            raise RetriableError(
                f"{report.table}: {report.ended}",
                hint="run again when other range jobs are over",
                code=Code.OTHER_RANGE_JOB,
            )
        return _of_replay(report)

    return Operation(
        REPLAY_DEAD_LETTERS,
        f"Tries the dead letters of {pipeline.name} again: what fits now goes to its tables.",
        ReplayConfig,
        {"ranges": []},
        work,
        lane=REPLAY_DEAD_LETTERS,
    )


def _of_replay(report: "DeadLetterReport") -> dict[str, Any]:
    return {
        "moved": report.moved,
        "still bad": report.still_bad,
        "not tried": sum(report.left.values()),
        **{f"not tried: {why}": number for why, number in report.left.items()},
        "range jobs": list(report.jobs),
        "ended": report.ended,
    }

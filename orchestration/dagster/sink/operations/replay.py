"""Replaying what was published, as `calve replay` does it: a span by hand, or hours from the Partitions page."""

# Without postponed annotations: Dagster looks at those of ops as they stand.

from collections.abc import Generator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from calve.orchestration.dagster.common.operations.job import Operation, Told, Work
from calve.orchestration.dagster.sink import metadata, table_page
from calve.orchestration.dagster.sink.names import REPLAY, REPLAY_HOURS
from calve.orchestration.times import span
from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import ConfigError, RetriableError, TableUnusable

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session
    from calve.sink_core.sink.range_jobs.jobs import RangeJobs, RangePreview, RangeReport
    from calve.sink_core.sink.range_jobs.selected import Wanted

TRIES = 5
"""How often a replay is started again that another range job was faster than."""

_NEVER_REPLACED = (Code.CHANGES_READ_AGAIN, Code.FED_BY_OTHERS, Code.NOT_REPLACED, Code.NO_KAFKA_COLUMN)
"""What no hour of a table can be replayed for, whatever it has: others of its pipeline can."""

OFFERED = timedelta(days=30)
"""Whose hours the Partitions page offers: few topics are kept longer, and its chart gives up at a thousand."""


class ReplayConfig(dg.Config):
    """What to read again for one table. Without times and ranges: what was published without it, its history."""

    table: str = Field(description="The table that gets the records.")
    from_time: str = Field(
        default="",
        description="Replace the rows of batches planned then or later: ISO 8601 with a zone, or an age such as 2h.",
    )
    to_time: str = Field(default="", description="Replace the rows of batches planned before then.")
    ranges: list[str] = Field(
        default=[], description="Replace the rows of these offsets, each TOPIC/PARTITION:START-END."
    )
    refill: bool = Field(
        default=False, description="Instead, read what the table lost; the commit of it resolves its finding."
    )
    preview: bool = Field(default=True, description="Only show which rows would be replaced. False: replace them.")


class HoursConfig(dg.Config):
    """Which tables an hour is replayed for."""

    tables: list[str] = Field(
        default=[], description="Only these. Empty: every table whose rows can be replaced; others are named."
    )
    preview: bool = Field(default=False, description="Only show which rows would be replaced.")


def replay(pipeline: SinkPipeline) -> "Operation[Session, ReplayConfig]":
    """One table, by hand; first as a preview."""

    def work(at: "Work[Session]", config: ReplayConfig) -> Generator[Told, None, dict[str, Any]]:
        names = "from_time", "to_time", "ranges"
        wanted = span(config.from_time or None, config.to_time or None, config.ranges, names=names)
        table = config.table
        if config.refill and wanted is not None:
            raise ConfigError(
                "refill reads what the table lost, times and ranges replace rows",
                hint="set one of them",
                code=Code.OPTION,
            )
        jobs = _jobs(at)
        if (wanted is None or not config.preview) and (held := at.held()):
            return held
        if wanted is None:
            reports = [jobs.refill(table)] if config.refill else list(jobs.history_to_end(table))
            return (yield from _told(at, reports))
        shown = metadata.of_preview(_preview(at, jobs, table, wanted))
        if config.preview:
            at.say("nothing was changed: set preview to false to replace them")
            return shown
        return shown | (yield from _told(at, [_replayed(jobs, table, wanted)]))

    first = next((name for name in _replayable(pipeline) if pipeline.format_of(name) == "iceberg"), "")
    return Operation(
        REPLAY,
        f"Reads again, for one table of {pipeline.name}, what was published before: what it has is replaced, what it "
        "never got or lost is added. No record comes twice.",
        ReplayConfig,
        {"table": first, "from_time": "2h", "to_time": "1h", "preview": True},
        work,
        lane=REPLAY,
    )


def replay_hours(pipeline: SinkPipeline) -> "Operation[Session, HoursConfig]":
    """A backfill: each hour of publishing is one run, and one commit for each table."""
    first_day = pipeline.config.dagster.hours_from or datetime.now(UTC).date() - OFFERED

    def work(at: "Work[Session]", config: HoursConfig) -> Generator[Told, None, dict[str, Any]]:
        from calve.sink_core.sink.range_jobs.selected import Wanted

        window = at.context.partition_time_window
        wanted = Wanted(_ms(window.start), _ms(window.end))
        tables = config.tables or _replayable(pipeline)
        if not tables:
            raise ConfigError(
                f"every table of {pipeline.name} takes row changes ({', '.join(sorted(pipeline.changing))}): records "
                "read again would be put over newer ones",
                hint="begin a new pipeline from `earliest` instead",
                code=Code.CHANGES_READ_AGAIN,
            )
        jobs, made = _jobs(at), dict[str, Any]()
        if not config.preview:
            if held := at.held():
                return held
            # What is published and not committed yet has no rows that could be replaced.
            yield from (
                table_page.landed(pipeline, commit) for commit in map(jobs.commit, tables) if commit and commit.landed
            )
        # All of them before the first is replaced: an hour that Kafka no longer has changes nothing.
        previews, left_out = _previews(at, jobs, config.tables, wanted)
        if left_out:
            made["left out"] = dg.MetadataValue.json(left_out)
        for table, preview in previews.items():
            shown = metadata.of_preview(preview)
            if preview.offsets and not config.preview:
                shown |= yield from _told(at, [_replayed(jobs, table, wanted)])
            made |= {f"{table}: {name}": value for name, value in shown.items()} if len(previews) > 1 else shown
        if not any(preview.offsets for preview in previews.values()):
            at.say(f"the hour {at.context.partition_key} is empty: no table has rows that were planned in it")
        return made

    return Operation(
        REPLAY_HOURS,
        f"Reads again what {pipeline.name} published in an hour, and puts it in place of the rows that its tables have "
        "of it, in one commit each. Launch a backfill from its Partitions page.",
        HoursConfig,
        {"tables": [], "preview": False},
        work,
        lane=REPLAY,
        partitions=dg.HourlyPartitionsDefinition(start_date=f"{first_day}-00:00", end_offset=1),
    )


def _jobs(at: "Work[Session]") -> "RangeJobs":
    from calve.sink_core.sink.range_jobs.jobs import RangeJobs

    at.plane.bind_published()
    return RangeJobs(at.plane, on_progress=at.progress)


def _replayable(pipeline: SinkPipeline) -> list[str]:
    return [table.name for table in pipeline.tables if table.name not in pipeline.changing]


def _preview(at: "Work[Session]", jobs: "RangeJobs", table: str, wanted: "Wanted") -> "RangePreview":
    found = jobs.preview(table, wanted)
    files = f"in {found.files:,} files of {found.bytes / 2**20:,.1f} MiB"
    at.say(found.ended or f"{table}: {found.offsets:,} offsets to read again, {found.rows:,} rows to replace, {files}")
    return found


def _previews(
    at: "Work[Session]", jobs: "RangeJobs", chosen: Sequence[str], wanted: "Wanted"
) -> "tuple[dict[str, RangePreview], dict[str, str]]":
    """What a replay of each table that is `chosen` would do; if none is, of each that can be replayed at all, and why
    others are left out. Raises as `RangeJobs.preview`, also if all are.
    """
    pipeline = at.plane.pipeline
    previews: dict[str, RangePreview] = {}
    left_out = dict[str, TableUnusable]()
    for table in chosen or [each.name for each in pipeline.tables]:
        try:
            previews[table] = _preview(at, jobs, table, wanted)
        except TableUnusable as error:
            if chosen or error.code not in _NEVER_REPLACED:
                raise
            left_out[table] = error
    if not previews:
        raise next(iter(left_out.values()))
    for error in left_out.values():
        at.context.log.warning(f"left out: {error.message}")
    return previews, {table: str(error) for table, error in left_out.items()}


def _replayed(jobs: "RangeJobs", table: str, wanted: "Wanted") -> "RangeReport":
    """Raises RetriableError if other range jobs were faster each time."""
    from calve.sink_core.control.decision import Verdict

    for _ in range(TRIES):
        report = jobs.replay(table, wanted)
        if report.verdict is not Verdict.STALE:
            return report
    raise RetriableError(
        f"{table}: other range jobs were faster {TRIES} times",
        hint="run again when other range jobs are over",
        code=Code.OTHER_RANGE_JOB,
    )


def _told(at: "Work[Session]", reports: "list[RangeReport]") -> Generator[Told, None, dict[str, Any]]:
    """Materializes what was committed; returns what was done as metadata."""
    for report in reports:
        replaced = f" in place of {report.replaced:,}" if report.replaced else ""
        at.say(f"{report.table}: {report.rows:,} rows{replaced}; {report.ended}" if report.verdict else report.ended)
        if report.commit is not None and report.commit.landed:
            hour = {"replayed hour": at.context.partition_key} if at.context.has_partition_key else {}
            yield table_page.landed(at.plane.pipeline, report.commit, **hour)
    return metadata.of_range_jobs(reports)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)

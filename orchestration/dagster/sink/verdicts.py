"""What the checks say of a pipeline's state. Pure: a status report in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from calve.orchestration.dagster.common.verdicts import (
    FRESHNESS,
    LAG,
    NOT_RUN,
    Check,
    Verdict,
    blockers_check,
    judged,
    lag,
    retention,
)
from calve.sink_core.config.sink import SinkObjectives
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.wording import counted, dropped_text

if TYPE_CHECKING:
    from calve.sink_core.sink.dead_letters.misfits import Misfits
    from calve.sink_core.sink.status import StatusReport, TableStatus
    from calve.sink_core.tables.log.state import BatchSeen
    from calve.sink_core.tables.proof import VerifyReport

RATE_BATCHES = 100
SMALL_FILES_FROM = 50
SMALL_SHARE = 1 / 8


@dataclass(frozen=True, slots=True)
class Health:
    """What the checks but the proof look at. `batches` are the published ones, oldest first."""

    pipeline: SinkPipeline
    report: StatusReport
    batches: Sequence[BatchSeen]

    @property
    def objectives(self) -> SinkObjectives:
        return self.pipeline.config.objectives

    def table(self, name: str) -> TableStatus:
        return next(table for table in self.report.tables if table.table == name)

    def target_bytes(self, name: str) -> int:
        return next(table.target_file_bytes for table in self.pipeline.tables if table.name == name)


def subjects(check: Check[Health], pipeline: SinkPipeline) -> list[str | None]:
    """What a check is made of, each on its own; None for the batches."""
    match check.of:
        case "batches":
            return [None]
        case "each table":
            return [table.name for table in pipeline.tables]
        case "dead letters":
            return [pipeline.dead_letter_table]
        case _:
            return [pipeline.ledger_table]


def health(pipeline: SinkPipeline, report: StatusReport, batches: Iterable[BatchSeen]) -> list[Verdict]:
    """Every verdict but the proof. `batches` are the published ones, oldest first."""
    seen = Health(pipeline, report, list(batches))
    return [*judged(CHECKS, seen, lambda check: subjects(check, pipeline))]


def freshness(table: TableStatus, waiting: int, most_s: float | None) -> Verdict:
    """The age of the oldest record that is not in the table. The valid-through time bounds it from above."""
    missing = waiting or table.uncommitted.batches
    if not missing:
        return Verdict(True, "everything there is has arrived", {"age_s": 0.0})
    if table.behind_s is None:
        passed = most_s is None
        return Verdict(passed, "records wait, and none has arrived yet", {})
    objective = "" if most_s is None else f", objectives.freshness is {most_s:g} s"
    text = f"the oldest record that is missing is at most {table.behind_s:,.1f} s old{objective}"
    passed = most_s is None or table.behind_s <= most_s
    return Verdict(passed, text, {"age_s": round(table.behind_s, 3)})


def dead_letter_rate(batches: Sequence[BatchSeen], most: float) -> Verdict:
    recent = [batch for batch in batches if batch.kind != "bootstrap"][-RATE_BATCHES:]
    records = sum(batch.totals.get("records", 0) for batch in recent)
    dead = sum(batch.totals.get("dead_lettered", 0) for batch in recent)
    share = dead / records if records else 0.0
    of = f"{dead:,} of {records:,} records in the last {counted(len(recent), 'batch', 'batches')} ({share:.2%})"
    text = f"{of}, at most {most:.2%} may be (objectives.dead_letters)"
    numbers = {"dead_letters": dead, "records": records, "share": round(share, 6)}
    return Verdict(share <= most, text, numbers, warning=True)


def schema_misfits(found: Sequence[Misfits]) -> Verdict:
    """Records that a table can't take since their schema, or its own, has changed and `evolve` can't follow."""
    text = "\n".join(map(str, found)) or "no record was set aside lately because a field does not fit"
    numbers = {"dead_letters": sum(each.records for each in found), "fields": len(found)}
    details = {"misfits": [asdict(each) for each in found]}
    return Verdict(not found, text, numbers, details=details)


def file_sizes(table: TableStatus, target_bytes: int) -> Verdict:
    mean = table.bytes / table.files if table.files else 0.0
    small = table.files >= SMALL_FILES_FROM and mean < target_bytes * SMALL_SHARE
    target = f"target_file_size is {target_bytes / 2**20:,.0f} MiB"
    files = f"{counted(table.files, 'file', 'files')} of {mean / 2**20:,.2f} MiB on average"
    text = f"{files}, {target}; small ones matter from {SMALL_FILES_FROM} files on"
    numbers = {"files": table.files, "mean_bytes": round(mean)}
    return Verdict(not small, text, numbers, warning=True)


def dropped_fields(table: TableStatus) -> Verdict:
    """Fields that records have and the table does not: nothing says that nobody misses them."""
    # Heavy, and needed where checks run only.
    from calve.sink_core.records.columns.kafka_column import KAFKA_TIME

    fields = {name: number for name, number in table.dropped.items() if name != KAFKA_TIME}
    what_to_do = "allow evolve: [add_column], or name in ignore_fields what nobody misses"
    text = f"no column takes {dropped_text(fields)}; {what_to_do}" if fields else "every field has a column"
    if timeless := table.dropped.get(KAFKA_TIME):
        text += (
            f"; {KAFKA_TIME} is null of {counted(timeless, 'record', 'records')} without a time of the years 1 to 9999"
        )
    numbers = {"fields": len(table.dropped), "values": sum(table.dropped.values())}
    details = {"dropped": dict(table.dropped)}
    return Verdict(not table.dropped, text, numbers, warning=True, details=details)


def proof(pipeline: SinkPipeline, report: VerifyReport) -> Verdict:
    """The ledger is contiguous and adds up, and log, positions and tables agree with it."""
    of = f" of what was planned since {report.since}" if report.since else ""
    holds = f"every offset{of} was accounted for once" if report.ran else NOT_RUN
    text = "\n".join(_violations(report)) or holds
    details: dict[str, Any] = {
        "violations": [asdict(violation) for violation in report.violations],
        "violations_not_shown": dict(report.left_out),
        "not_checked": [asdict(part) for part in report.not_checked],
        "uncommitted": dict(report.uncommitted),
        "since": report.since or "the beginning",
    }
    numbers = dict(report.facts)
    return Verdict(report.proven, text, numbers, details=details, check=PROOF.name, subject=pipeline.ledger_table)


def not_proven(pipeline: SinkPipeline, why: str) -> Verdict:
    """Nothing was found, and not everything was looked at."""
    return Verdict(False, why, {}, warning=True, check=PROOF.name, subject=pipeline.ledger_table)


def _violations(report: VerifyReport) -> Iterator[str]:
    for violation in report.violations:
        ranges = f" ({', '.join(violation.ranges)})" if violation.ranges else ""
        yield f"{violation.kind}: {violation.subject}: {violation.message}{ranges}"


PROOF: Check[Health] = Check(
    "proof",
    "ledger",
    "The ledger is contiguous and adds up; control topic, positions and tables agree with it.",
    "what `calve verify` checks does not hold. Its metadata has each violation with its ranges and batches, and "
    "what could not be checked",
)
CHECKS: tuple[Check[Health], ...] = (
    Check(
        LAG,
        "batches",
        "Records that wait, against objectives.lag.",
        "more records wait than `objectives.lag`",
        lambda seen, _table: lag(seen.report.lag, seen.objectives.lag),
    ),
    Check(
        "retention",
        "batches",
        "How near deletion by retention is to records that were not read yet.",
        "less than a tenth of a partition's log lies before the next record to read (warning), or unread records "
        "are deleted",
        lambda seen, _table: retention(seen.report.partitions),
    ),
    blockers_check("batches", lambda seen: seen.report.blockers),
    Check(
        FRESHNESS,
        "each table",
        "Age of the oldest record that is not in the table, against objectives.freshness.",
        "the oldest record that is not in the table may be older than `objectives.freshness`",
        lambda seen, table: freshness(seen.table(table), seen.report.lag, seen.objectives.freshness),
    ),
    Check(
        "file_sizes",
        "each table",
        "Many small files make reading slow; compaction joins them.",
        "50 files or more, an eighth of `target_file_size` on average or less (warning)",
        lambda seen, table: file_sizes(seen.table(table), seen.target_bytes(table)),
    ),
    Check(
        "dropped_fields",
        "each table",
        "Fields of records in the last batches that the table has no column for.",
        "the last 100 batches had fields that the table has no column for and `ignore_fields` does not name (warning)",
        lambda seen, table: dropped_fields(seen.table(table)),
    ),
    Check(
        "dead_letter_rate",
        "dead letters",
        "Share of dead letters in the last batches, against objectives.dead_letters.",
        "more dead letters than `objectives.dead_letters` in the last 100 batches (warning)",
        lambda seen, _table: dead_letter_rate(seen.batches, seen.objectives.dead_letters),
    ),
    Check(
        "schema_misfits",
        "dead letters",
        "Records of the last days that a table can't take since a schema has changed, by field.",
        "records that came lately (`objectives.schema_misfits`, seven days by default) are among the dead letters"
        " because a field doesn't fit its table, as after an incompatible change of their schema. It names the "
        "fields, with how many records and since when; a replay that moves them makes it green",
        lambda seen, _table: schema_misfits(seen.report.misfits),
    ),
    PROOF,
)
"""Every check of a pipeline. Dagster's specs are made of it, and docs/dagster.md has its rows."""

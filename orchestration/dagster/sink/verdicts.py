"""What the checks say of a pipeline's state. Pure: a status report in, verdicts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from calve.orchestration.wording import counted, dropped_text
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.dead_letters.misfits import Misfits
    from calve.sink_core.sink.control.state import BatchSeen
    from calve.sink_core.sink.status import PartitionStatus, StatusReport, TableStatus
    from calve.sink_core.verify.report import VerifyReport

LAG, RETENTION, FRESHNESS, FILE_SIZES, DROPPED, RATE, MISFITS, PROOF = (
    "lag",
    "retention",
    "freshness",
    "file_sizes",
    "dropped_fields",
    "dead_letter_rate",
    "schema_misfits",
    "proof",
)

RATE_BATCHES = 100
SMALL_FILES_FROM = 50
SMALL_SHARE = 1 / 8
RETENTION_SHARE = 0.1
"""Warn when less than this share of a partition's log lies between its start and the next record to read."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`table` is None for a check of the batches. `warning`: something to look at, rather than something broken.

    `details` are JSON-able, for people.
    """

    table: str | None
    check: str
    passed: bool
    text: str
    numbers: Mapping[str, int | float]
    warning: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


def health(pipeline: SinkPipeline, report: StatusReport, batches: Iterable[BatchSeen]) -> list[Verdict]:
    """Every verdict but the proof. `batches` are the published ones, oldest first."""
    tables = {table.table: table for table in report.tables}
    return [
        lag(report, pipeline.config.objectives.lag),
        retention(report.partitions),
        dead_letter_rate(pipeline.dead_letter_table, list(batches), pipeline.config.objectives.dead_letters),
        schema_misfits(pipeline.dead_letter_table, report.misfits),
        *(
            verdict
            for settings in pipeline.tables
            for verdict in (
                freshness(tables[settings.name], report.lag, pipeline.config.objectives.freshness),
                file_sizes(tables[settings.name], settings.target_file_bytes),
                dropped_fields(tables[settings.name]),
            )
        ),
    ]


def lag(report: StatusReport, most: int | None) -> Verdict:
    text = f"{report.lag:,} records wait" + ("" if most is None else f", objectives.lag is {most:,}")
    return Verdict(None, LAG, most is None or report.lag <= most, text, {"lag": report.lag})


def freshness(table: TableStatus, waiting: int, most_s: float | None) -> Verdict:
    """The age of the oldest record that is not in the table. The valid-through time bounds it from above."""
    missing = waiting or table.uncommitted.batches
    if not missing:
        return Verdict(table.table, FRESHNESS, True, "everything there is has arrived", {"age_s": 0.0})
    if table.behind_s is None:
        passed = most_s is None
        return Verdict(table.table, FRESHNESS, passed, "records wait, and none has arrived yet", {})
    objective = "" if most_s is None else f", objectives.freshness is {most_s:g} s"
    text = f"the oldest record that is missing is at most {table.behind_s:,.1f} s old{objective}"
    passed = most_s is None or table.behind_s <= most_s
    return Verdict(table.table, FRESHNESS, passed, text, {"age_s": round(table.behind_s, 3)})


def retention(partitions: Iterable[PartitionStatus]) -> Verdict:
    """How near deletion by retention is to records that were not read."""
    # Where nothing was ever deleted, retention is not at work yet.
    lagging = [p for p in partitions if p.lag and p.position is not None and p.log_start]
    shares = {f"{p.topic}[{p.partition}]": p.until_loss / max(1, p.end - p.log_start) for p in lagging}
    if not shares:
        return Verdict(None, RETENTION, True, "no record waits where retention deletes", {})
    nearest, share = min(shares.items(), key=lambda item: item[1])
    lost = min(p.until_loss for p in lagging) < 0
    text = (
        f"{nearest}: records were deleted before they were read"
        if lost
        else f"{nearest}: {share:.0%} of its log lie before the next record to read; retention deletes from there"
    )
    passed = share >= RETENTION_SHARE
    return Verdict(None, RETENTION, passed, text, {"share_left": round(share, 4)}, warning=not lost)


def dead_letter_rate(table: str, batches: list[BatchSeen], most: float) -> Verdict:
    recent = [batch for batch in batches if batch.kind != "bootstrap"][-RATE_BATCHES:]
    records = sum(batch.totals.get("records", 0) for batch in recent)
    dead = sum(batch.totals.get("dead_lettered", 0) for batch in recent)
    share = dead / records if records else 0.0
    of = f"{dead:,} of {records:,} records in the last {counted(len(recent), 'batch', 'batches')} ({share:.2%})"
    text = f"{of}, at most {most:.2%} may be (objectives.dead_letters)"
    numbers = {"dead_letters": dead, "records": records, "share": round(share, 6)}
    return Verdict(table, RATE, share <= most, text, numbers, warning=True)


def schema_misfits(table: str, found: Sequence[Misfits]) -> Verdict:
    """Records that a table can't take since their schema, or its own, has changed and `evolve` can't follow."""
    text = "\n".join(map(str, found)) or "no record was set aside lately because a field does not fit"
    numbers = {"dead_letters": sum(each.records for each in found), "fields": len(found)}
    details = {"misfits": [asdict(each) for each in found]}
    return Verdict(table, MISFITS, not found, text, numbers, details=details)


def file_sizes(table: TableStatus, target_bytes: int) -> Verdict:
    mean = table.bytes / table.files if table.files else 0.0
    small = table.files >= SMALL_FILES_FROM and mean < target_bytes * SMALL_SHARE
    target = f"target_file_size is {target_bytes / 2**20:,.0f} MiB"
    files = f"{counted(table.files, 'file', 'files')} of {mean / 2**20:,.2f} MiB on average"
    text = f"{files}, {target}; small ones matter from {SMALL_FILES_FROM} files on"
    numbers = {"files": table.files, "mean_bytes": round(mean)}
    return Verdict(table.table, FILE_SIZES, not small, text, numbers, warning=True)


def dropped_fields(table: TableStatus) -> Verdict:
    """Fields that records have and the table does not: nothing says that nobody misses them."""
    # Heavy, and needed where checks run only.
    from calve.sink_core.tables.kafka_column import KAFKA_TIME

    fields = {name: number for name, number in table.dropped.items() if name != KAFKA_TIME}
    what_to_do = "allow evolve: [add_column], or name in ignore_fields what nobody misses"
    text = f"no column takes {dropped_text(fields)}; {what_to_do}" if fields else "every field has a column"
    if timeless := table.dropped.get(KAFKA_TIME):
        text += (
            f"; {KAFKA_TIME} is null of {counted(timeless, 'record', 'records')} without a time of the years 1 to 9999"
        )
    numbers = {"fields": len(table.dropped), "values": sum(table.dropped.values())}
    details = {"dropped": dict(table.dropped)}
    return Verdict(table.table, DROPPED, not table.dropped, text, numbers, warning=True, details=details)


def proof(pipeline: SinkPipeline, report: VerifyReport) -> Verdict:
    """The ledger is contiguous and adds up, and log, positions and tables agree with it."""
    of = f" of what was planned since {report.since}" if report.since else ""
    text = "\n".join(_violations(report)) or f"every offset{of} was accounted for once"
    details: dict[str, Any] = {
        "violations": [asdict(violation) for violation in report.violations],
        "violations_not_shown": dict(report.left_out),
        "not_checked": [asdict(part) for part in report.not_checked],
        "uncommitted": dict(report.uncommitted),
        "since": report.since or "the beginning",
    }
    return Verdict(pipeline.ledger_table, PROOF, report.proven, text, dict(report.facts), details=details)


def _violations(report: VerifyReport) -> Iterator[str]:
    for violation in report.violations:
        ranges = f" ({', '.join(violation.ranges)})" if violation.ranges else ""
        yield f"{violation.kind}: {violation.subject}: {violation.message}{ranges}"

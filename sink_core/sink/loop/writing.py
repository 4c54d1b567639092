"""A batch from plan to files: its tasks, then one manifest per table and spec, the ledger included."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.counts import PartitionCounts
from calve.sink_core.errors import BadRecord
from calve.sink_core.failpoints import reach
from calve.sink_core.iceberg.format.table import iceberg
from calve.sink_core.iceberg.write.outputs import write_ledger
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.records.decode.others import sum_dropped
from calve.sink_core.sink.loop.complete import COUNTED
from calve.sink_core.sink.loop.engine import Engine
from calve.sink_core.sink.loop.fitting import ChangeTables, Tables, write_with_evolution
from calve.sink_core.sink.write.spec import IngestSpec, TableSpec
from calve.sink_core.sink.write.task import FirstBad, TaskResult
from calve.sink_core.tables.batch import BatchPlan, WrittenBatch
from calve.sink_core.tables.format.lake import LoadedTable
from calve.sink_core.tasks import WrittenBy


def write_batch(
    plan: BatchPlan,
    *,
    pipeline: SinkPipeline,
    tables: Mapping[str, LoadedTable],
    engine: Engine,
    change: ChangeTables | None = None,
    left_out: Collection[str] = (),
) -> WrittenBatch:
    """Write the files and manifests of a batch. Nothing names them until the batch is published.

    `tables` holds the pipeline's tables by name, ledger and dead letters included. If records need what tables lack, or
    tables that are not there, `change` is asked for it and the batch is written again. Tables that are `left_out` have
    its records read again for them. Raises TableUnusable, BadRecord (also for more bad records than
    `dead_letters.stop_above` allows), and what reading, storage and Spark raise.
    """

    written_by: WrittenBy | None = None

    def write(tables: Tables, evolving: bool) -> list[TaskResult]:
        nonlocal written_by
        for table in tables.values():
            table.check_usable()
        spec = task_spec(
            plan.batch_id,
            pipeline,
            tables,
            instant_ms=plan.instant_ms,
            evolving=evolving,
            read=[part.at for part in plan.ranges],
        )
        results = engine.write(spec, plan.tasks)
        written_by = engine.writer(spec, plan.tasks)
        return results

    tables, results = write_with_evolution(tables, write, change)
    reach("write.after-files")
    named = [table.name for table in pipeline.tables if table.explicit and table.name not in left_out]
    counts = merge_counts(plan, [count for result in results for count in result.counts], named)
    _check_share(pipeline, counts, [result.first_bad for result in results if result.first_bad])
    files = {name: [file for result in results for file in result.files.get(name, ())] for name in tables}
    files[pipeline.ledger_table] += write_ledger(plan, counts, iceberg(tables[pipeline.ledger_table]))
    changes = {name: sum(count.written.get(name, 0) for count in counts) for name in pipeline.changing}
    to_merge = {
        settings.name: row_changes.to_merge
        for settings in pipeline.tables
        if settings.name in tables and (row_changes := tables[settings.name].row_changes(settings))
    }
    outputs = tuple(
        table.output(plan.batch_id, files[name], changes.get(name), to_merge.get(name))
        for name, table in tables.items()
    )
    reach("write.after-manifests")
    return WrittenBatch(plan, outputs, counts, sum_dropped(result.dropped for result in results), written_by)


def merge_counts(
    plan: BatchPlan, slices: Iterable[PartitionCounts], tables: Sequence[str]
) -> tuple[PartitionCounts, ...]:
    """Counts of slices added up by partition, in the plan's order, for each partition whose position moves; all of them
    name `tables`.
    """
    merged = {
        part.at: PartitionCounts(part.topic, part.partition, part.start, part.end, written=dict.fromkeys(tables, 0))
        for part in plan.ranges
        if part.span
    }
    for piece in slices:
        total = merged[TopicPartition(piece.topic, piece.partition)]
        for name in COUNTED:
            setattr(total, name, getattr(total, name) + getattr(piece, name))
        total.max_timestamp_ms = max(total.max_timestamp_ms, piece.max_timestamp_ms)
        total.timestamp_type = max(total.timestamp_type, piece.timestamp_type)
        for mine, its in ((total.written, piece.written), (total.left_out, piece.left_out)):
            mine.update({name: mine.get(name, 0) + number for name, number in its.items()})
    return tuple(merged.values())


def task_spec(
    batch_id: str,
    pipeline: SinkPipeline,
    tables: Mapping[str, LoadedTable],
    *,
    instant_ms: int,
    evolving: bool = False,
    read: Sequence[TopicPartition] = (),
) -> IngestSpec:
    """What each task of a batch is given: tables as they are now, connections as they stand in the files.

    `tables` holds the dead letters and those to be written; `instant_ms` as in `BatchPlan`. Only if `evolving` may
    tasks want more of them, or others. `read` are the partitions there are: where a table has one only, no key comes
    from another.
    """
    # Those that records have asked for since it was planned are among the tables.
    pipeline = pipeline.having(pipeline.matched, {*pipeline.known_tables, *tables}) if pipeline.is_open else pipeline

    def spec(t: TableSettings) -> TableSpec:
        table = tables[t.name]
        changes = table.row_changes(t)
        several = len([at for at in read if t.rule.takes_topic(at.topic)]) > 1
        # A merge compares the order itself.
        looks = changes is not None and changes.held and (several if changes.order is None else not t.merged)
        return TableSpec(
            t.name,
            table.target(pipeline.target_file_size(t.name), changes, instant_ms),
            evolve=t.evolve if evolving else t.evolve.without(),
            ignored=t.ignore_fields,
            strict=t.unknown_fields == "dead_letter",
            any_case=t.case_insensitive,
            rule=t.rule,
            explicit=t.explicit,
            transform=t.transform,
            keys_as=pipeline.keys_as(t),
            changes=changes,
            existing=table.existing_rows(changes.key, changes.held) if changes and looks else None,
        )

    letters = pipeline.dead_letter_table
    return IngestSpec(
        batch_id=batch_id,
        group=pipeline.group,
        catalog=pipeline.catalog,
        tables=tuple(spec(t) for t in pipeline.tables if t.name in tables),
        dead_letters=TableSpec(letters, tables[letters].target(pipeline.target_file_size(letters))),
        stop_on_bad_record=pipeline.config.on_bad_record == "stop",
        readings=pipeline.readings,
        kafka=pipeline.kafka.properties,
        namings=pipeline.namings,
        topics=pipeline.topics,
        evolving=evolving,
    )


def _check_share(pipeline: SinkPipeline, counts: Iterable[PartitionCounts], first_bad: Sequence[FirstBad]) -> None:
    """Before anything names the batch's files: they are orphans if its share of bad records is too large."""
    bad, records = 0, 0
    for count in counts:
        bad, records = bad + count.dead_lettered, records + count.records
    limit = pipeline.config.dead_letters.stop_above
    if limit is not None and bad > limit * records:
        raise BadRecord(
            f"{bad:,} of {records:,} records of the batch ({bad / records:.2%}) can't be stored, more than "
            f"dead_letters.stop_above allows ({limit:.2%}); nothing was published; the first: {min(first_bad)}",
            hint="correct the producer or the tables; to set them aside all the same raise dead_letters.stop_above, or "
            "leave it out",
            code=Code.TOO_MANY_BAD,
        )

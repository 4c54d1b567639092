"""What a table's page shows of the table itself: where it lies, its columns and whence they come, some of its rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import dagster as dg

from calve.orchestration.dagster.common.tags import following
from calve.orchestration.dagster.common.topics import topic_key
from calve.orchestration.dagster.sink.metadata import of_commit, of_schema
from calve.orchestration.dagster.sink.names import batches_key, table_key
from calve.sink_core.config.references import HIDDEN, names_a_secret
from calve.sink_core.config.sink_pipeline import SinkPipeline

if TYPE_CHECKING:
    from calve.sink_core.sink.loop.session import Session
    from calve.sink_core.tables.commit import TableCommit
    from calve.sink_core.tables.format.lake import LoadedTable

SHOWN_CHARACTERS = 80
SHOWN_COLUMNS = 40


def landed(pipeline: SinkPipeline, commit: TableCommit, **more: Any) -> dg.AssetMaterialization:
    """The materialization of a table that a commit landed in, told by an op whose output it is not."""
    known = of_commit(commit, time.time_ns() // 1_000_000) | more
    tags = following(batches_key(pipeline), str(commit.snapshot_id))
    return dg.AssetMaterialization(table_key(pipeline, commit.table), metadata=known, tags=tags)


def is_untold(context: dg.AssetExecutionContext, pipeline: SinkPipeline, name: str) -> bool:
    """Whether Dagster has never been told of a table, this run included."""
    return context.instance.get_latest_materialization_event(table_key(pipeline, name)) is None


def of_table(pipeline: SinkPipeline, session: Session, name: str) -> dict[str, Any]:
    """Metadata of a materialization of a table of the pipeline's; none if somebody has dropped it since."""
    table = session.look(name, compare=False).table
    if table is None:
        return {}
    found, schema = table.described, table.schema
    columns = [field.name for field in schema.fields]
    return {
        "dagster/uri": found.location,
        **{name: dg.MetadataValue.path(f) if isinstance(f, str) and "/" in f else f for name, f in found.facts.items()},
        **of_schema(schema),
        **_lineage(pipeline, name, columns),
        **_sample(table, columns[:SHOWN_COLUMNS], pipeline.config.dagster.sample_rows),
    }


def _lineage(pipeline: SinkPipeline, name: str, columns: list[str]) -> dict[str, Any]:
    """Each column from the field of its name, of every topic that the table is fed from. SQL may do anything."""
    settings = next((each for each in pipeline.tables if each.name == name), None)
    if settings is None or settings.transform is not None:
        return {}
    fed = settings.rule.topics or frozenset(pipeline.config.source.topics)
    source = pipeline.config.source
    topics = [topic_key(pipeline, source, topic) for topic in source.topics if topic in fed]
    deps = {
        column: [dg.TableColumnDep(asset_key=topic, column_name=column) for topic in topics]
        for column in columns
        if not column.startswith("_")
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)} if topics and deps else {}


def _sample(table: LoadedTable, shown: list[str], rows: int) -> dict[str, Any]:
    """Some rows, whichever come first; without what is named like a secret."""
    if not rows:
        return {}
    try:
        found = table.sample(shown, rows)
    except (NotImplementedError, ValueError) as error:
        # pyiceberg reads no equality deletes.
        return {"sample rows": f"can't be read here: {error}"}
    records = [dg.TableRecord({name: _cell(name, row[name]) for name in shown}) for row in found]
    return {"sample rows": dg.MetadataValue.table(records)} if records else {}


def _cell(name: str, value: object) -> str:
    if names_a_secret(name):
        return HIDDEN
    text = "" if value is None else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"

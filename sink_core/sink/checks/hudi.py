"""Can Hudi tables be written: is the warehouse there, the Java client, and the tables such that Calve can append?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from calve.sink_core.codes import Code
from calve.sink_core.config.sink_pipeline import SinkPipeline, TableSettings
from calve.sink_core.control.checking.checklist import Note
from calve.sink_core.errors import ConfigError
from calve.sink_core.hudi.files.place import place_of, warehouse_of
from calve.sink_core.hudi.files.read import has_reader
from calve.sink_core.hudi.files.timeline import read_properties, read_timeline
from calve.sink_core.hudi.java.create import new_hudi_table
from calve.sink_core.hudi.java.fetched import fetch_client, fetch_spark
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.hudi.table.view import view_of
from calve.sink_core.java import find_java
from calve.sink_core.records.columns.kafka_column import has_kafka_column
from calve.sink_core.tables.format.lake import Columns
from calve.sink_core.tables.history.record import SummaryKeys


def warehouse(pipeline: SinkPipeline) -> str | Note:
    """Writes and deletes a small file where the tables go."""
    assert pipeline.hudi is not None
    folder = warehouse_of(pipeline.hudi)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".calve-check-") as probe:
            # A batch's files come into their table by a second name.
            os.link(probe.name, f"{probe.name}-linked")
            Path(f"{probe.name}-linked").unlink()
    except OSError as error:
        raise ConfigError(
            f"hudi.warehouse: {folder} can't be used: {error}",
            hint="name a folder that this user may write to, on a file system with hard links",
            code=Code.NO_LOCAL_WAREHOUSE,
        ) from None
    if has_reader():
        return f"{folder} can be written"
    return Note(f"{folder} can be written", "`verify` can't look into Hudi tables: pip install 'calve[hudi]'")


def client() -> str:
    """Java, and Hudi's archives, which are fetched if need be."""
    return f"{find_java()}; {fetch_client(str).text}"


def row_changes() -> str:
    """The Spark that brings row changes in, which is fetched if need be."""
    return fetch_spark(str).text


def table(pipeline: SinkPipeline, settings: TableSettings, shown: Columns) -> str | Note:
    """Whether it can be written, or can be created as the file says."""
    assert pipeline.hudi is not None
    place = place_of(warehouse_of(pipeline.hudi), settings.name)
    properties = read_properties(place)
    if properties is None:
        new = new_hudi_table(settings, shown)
        partitions = f"partitioned by {', '.join(new.partitions)}" if new.partitions else "unpartitioned"
        key = f", rows told apart by {', '.join(new.key)}" if new.key else ""
        return f"will be created as {settings.hudi_type}, {partitions}{key}"
    keys = SummaryKeys(pipeline.config.first_name, pipeline.control_topic, pipeline.group)
    timeline = read_timeline(place)
    # Reads all commits, as each batch does: one that is damaged is seen here.
    view = view_of(timeline, table=settings.name, uuid="", keys=keys, archived=False)
    found = HudiTable(settings.name, place, properties, timeline, view, keys)
    found.check_usable()
    if found.row_changes(settings) is not None:
        return f"can be written, rows told apart by {', '.join(found.key)}"
    if not has_kafka_column(found.schema, table=settings.name):
        raise ConfigError(
            f"{settings.name}: has no column _kafka, of which its record keys are made",
            hint="have Calve create a table of another name",
        )
    return "can be written"

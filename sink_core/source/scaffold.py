"""The text of a new source's pipeline file, with its comments."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.config.common import BATCH_LINES
from calve.sink_core.config.problems import checked
from calve.sink_core.config.source import SourceConfig


def source_text(name: str, database: str, kafka: str, tables: Sequence[str], publication: str) -> str:
    """Of PostgreSQL's log; database and cluster are names of `connections.yaml`.

    Raises ConfigError for a name or table that can't be one.
    """
    text = f"""\
# Calve: changes of PostgreSQL tables of {database}, by its log, sent to {kafka}, each exactly once.
#   calve check FILE    connects to both and says what is missing
#   calve run FILE      sends what the log has
# docs/reference.md lists every key, docs/sources.md what else can be read: tables by query, files, a class of yours.
# The database needs wal_level = logical, and once: CREATE PUBLICATION {publication} FOR TABLE {", ".join(tables)}

name: {name}  # part of every id in Kafka: keep it once the source has run
kind: source

source:
  database: {database}  # from connections.yaml
  log:
    slot: calve_{name}  # made by the first run; one for each pipeline
    publication: {publication}
    tables: [{", ".join(tables)}]
    snapshot: initial  # or never: only what changes from now on

target:
  kafka: {kafka}  # has the control topic and the source offsets too
  topics: "{name}.{{schema}}.{{table}}"
  # partitions: 12
  # value: {{shape: row}}  # rows and tombstones in place of Debezium's change events

# dead_letters: {{topic: {name}.dead}}  # else a row that can't be sent stops the pipeline

# When Dagster starts a run.
# trigger: {{every: 1m, or_records: 1000000}}
{BATCH_LINES}
# run: {{linger: 5m}}  # stay for more
"""
    return checked(text, SourceConfig)

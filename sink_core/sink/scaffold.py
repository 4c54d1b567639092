"""`calve init`: the text of a pipeline file with its comments, from a sample's columns, and of `connections.yaml`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from calve.sink_core.codes import Code
from calve.sink_core.config.common import BATCH_LINES
from calve.sink_core.config.connections import Connections
from calve.sink_core.config.model import Model
from calve.sink_core.config.problems import problems
from calve.sink_core.config.reading import RegistrySettings, ValueSettings
from calve.sink_core.config.references import HIDDEN, redact
from calve.sink_core.config.sink import SinkConfig
from calve.sink_core.config.yaml_file import read
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.type_text import type_text

NAME_LENGTH = 41

JSON = ValueSettings()
M = TypeVar("M", bound=Model)
_TIME_TYPES = (DateType, TimestampType, TimestamptzType)


@dataclass(frozen=True, slots=True)
class Draft:
    """What the file will say. `sampled` is the number of records the columns were inferred from."""

    name: str
    topic: str
    table: str
    kafka: str
    catalog: str
    columns: Schema
    sampled: int
    value: ValueSettings = JSON


def name_from(topic: str) -> str:
    """A pipeline's name, also fit for a table, from a topic's: `Air.Flights-v2` → `air_flights_v2`."""
    name = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")
    return (name if name[:1].isalpha() else f"t_{name}")[:NAME_LENGTH].rstrip("_")


def connections_text(
    kafka: Mapping[str, str],
    catalog: Mapping[str, str],
    *,
    deployment: str,
    kafka_name: str,
    catalog_name: str,
    registry: RegistrySettings | None = None,
) -> str:
    """`connections.yaml`. Raises ConfigError for a secret written literally, or a key that isn't the user's to set."""
    for key, value in {**kafka, **catalog, **(registry.properties if registry else {})}.items():
        if HIDDEN in str(redact({key: value})[key]):
            raise ConfigError(
                f"{key}: a secret was given literally, and files are no place for secrets",
                hint=f"put it into an environment variable and give {key}='${{ENV:NAME}}'",
                code=Code.LITERAL_SECRET,
            )
    text = f"""\
# What pipelines share, by name. Secrets stay outside: write ${{ENV:NAME}}, read where the connection is opened.
# docs/reference.md lists every key.

deployment: {_scalar(deployment)}  # the environment, part of every Kafka id; prod and dev don't meet on one cluster

kafka:
  {kafka_name}:  # librdkafka's own keys
{_mapping(kafka, indent=4)}

catalog:
  {catalog_name}:  # pyiceberg's own keys
{_mapping(catalog, indent=4)}
{_registry(registry)}
# spark:
#   cluster: {{master: "spark://host:7077"}}  # then `spark: cluster` in a pipeline file; left out, it is local[*]
"""
    _validate(Connections, text)
    return text


def pipeline_text(draft: Draft) -> str:
    """The pipeline file. Raises ConfigError for a name, topic or table that can't be one."""
    told = "Inferred from" if draft.value == JSON else "By the schema of"
    text = f"""\
# Calve: Kafka topic {draft.topic} to the Iceberg table {draft.table}, every record exactly once.
#   calve check FILE    connects to each part and says what is missing
#   calve run FILE      reads what the topic holds
# docs/reference.md lists every key.

name: {_scalar(draft.name)}  # part of every id in Kafka and Iceberg: keep it once the pipeline has run

source:
  kafka: {draft.kafka}  # from connections.yaml
  topics: [{_scalar(draft.topic)}]
  start: earliest  # for the first run: earliest, latest, {{timestamp: "2026-01-31T00:00:00Z"}} or {{group: NAME}}
  value: {_value(draft.value)}

catalog: {draft.catalog}  # from connections.yaml

tables:
  - name: {_scalar(draft.table)}
    mode: append
    auto_create:
      # {told} {draft.sampled:,} records. Change a type before the first run, not after it.
      columns:
{_columns(draft.columns)}
      # partition_by: [{_partition_term(draft.columns)}]  # year, month, day, hour, bucket(16, id)

on_bad_record: dead_letter  # or stop
# dead_letters: {{stop_above: 5%}}  # a batch with a larger share of bad records than this stops the pipeline

# When Dagster starts a run: a topic that never stops makes one batch, file and snapshot in this time.
# trigger: {{every: 1m, or_records: 1000000}}
{BATCH_LINES}
# run: {{linger: 5m}}  # stay for more, without a new start; with batch: {{every: 5s}} for fresher tables

# Maintenance of the tables, on a schedule under Dagster; by hand: calve maintain FILE compact
# maintenance:
#   compact: {{cron: "0 * * * *"}}  # each task has a time of its own
#   expire: {{older_than: 7d}}
#   off: [orphans]
"""
    _validate(SinkConfig, text)
    return text


def catalog_keys(lake: Path, uri: str | None, warehouse: str | None) -> dict[str, str]:
    """pyiceberg's keys for a new catalog: as given, else SQLite and a local warehouse in the folder `lake`."""
    uri = uri or f"sqlite:///{lake / 'catalog.db'}"
    kinds = {"http": "rest", "https": "rest", "thrift": "hive"}
    kind = kinds.get(uri.partition("://")[0], "sql")
    place = warehouse or (f"file://{lake / 'warehouse'}" if kind == "sql" else None)
    return {"type": kind, "uri": uri} | ({"warehouse": place} if place else {})


def read_connections(path: Path) -> Connections:
    """An existing `connections.yaml`. Raises ConfigError that lists its problems."""
    document = read(path)
    try:
        return Connections.model_validate(document.data)
    except ValidationError as error:
        raise ConfigError(
            "\n".join(problems(error, Connections, document)), hint="correct them first", code=Code.SETTINGS
        ) from None


def only_name(section: str, names: Mapping[str, object], wanted: str | None) -> str:
    """Which connection of an existing `connections.yaml` to name. Raises ConfigError if that isn't clear."""
    known = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise ConfigError(
            f"connections.yaml has no {section} named {wanted!r} (it has {known})",
            hint=f"give one with --{section}",
            code=Code.CONNECTION,
        )
    if wanted is None and len(names) != 1:
        raise ConfigError(
            f"connections.yaml has {len(names)} under {section} ({known})",
            hint=f"say which with --{section} NAME",
            code=Code.CONNECTION,
        )
    return wanted or next(iter(names))


def _registry(registry: RegistrySettings | None) -> str:
    if registry is None:
        return ""
    return f"""
registry:
  {registry.name}:  # the keys of confluent-kafka's registry client
{_mapping(registry.properties, indent=4)}
"""


def _value(value: ValueSettings) -> str:
    registry = f", registry: {_scalar(value.registry.name)}" if value.registry else ""
    return f"{{type: {value.type}{registry}}}"


def _columns(schema: Schema) -> str:
    lines = (
        f"        {_scalar(field.name)}: {_scalar(type_text(field.field_type))}"
        + (f"  # {field.doc}" if field.doc else "")
        for field in schema.fields
    )
    return "\n".join(lines)


def _partition_term(schema: Schema) -> str:
    times = (field.name for field in schema.fields if isinstance(field.field_type, _TIME_TYPES))
    return json.dumps(f"day({next(times, '_kafka.timestamp')})", ensure_ascii=False)


def _mapping(values: Mapping[str, str], *, indent: int) -> str:
    return "\n".join(f"{' ' * indent}{_scalar(key)}: {_scalar(value)}" for key, value in values.items())


def _scalar(text: str) -> str:
    """`text` as YAML on one line, quoted where YAML would read something else."""
    dumped = yaml.safe_dump(text, default_flow_style=True, allow_unicode=True, width=2**31)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _validate(model: type[M], text: str) -> M:
    try:
        return model.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_url=False)]
        raise ConfigError(
            "\n".join(faults), hint="give another value on the command line", code=Code.SETTINGS
        ) from None

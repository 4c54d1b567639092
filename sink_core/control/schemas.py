"""Avro schemas of the events on the control topic.

A field may be added with a default, and never be removed or change its meaning; a change that an older reader would
misread raises `MIN_READER` of that event. Documented for users in `docs/events.md`.
"""

from __future__ import annotations

from typing import Any

READER_VERSION = 6
"""The highest `min_reader` this code understands."""

MIN_READER_KEY = "calve.min-reader"
"""Key in the Avro file metadata of every message."""

Schema = dict[str, Any]

_COMMON: list[Schema] = [
    {"name": "event_id", "type": "string"},
    {"name": "pipeline_id", "type": "string"},
    {"name": "written_at_ms", "type": "long"},
    {"name": "calve_version", "type": "string"},
]

_PARTITION_SUMMARY: Schema = {
    "type": "record",
    "name": "PartitionSummary",
    "fields": [
        {"name": "contains_null", "type": "boolean"},
        {"name": "contains_nan", "type": ["null", "boolean"]},
        {"name": "lower_bound", "type": ["null", "bytes"]},
        {"name": "upper_bound", "type": ["null", "bytes"]},
    ],
}

_MANIFEST: Schema = {
    "type": "record",
    "name": "ManifestRef",
    "fields": [
        {"name": "path", "type": "string"},
        {"name": "length", "type": "long"},
        {"name": "sha256", "type": "string"},
        {"name": "content", "type": "int"},
        {"name": "spec_id", "type": "int"},
        {"name": "files", "type": "int"},
        {"name": "rows", "type": "long"},
        {"name": "data_bytes", "type": "long"},
        {"name": "partitions", "type": {"type": "array", "items": _PARTITION_SUMMARY}},
    ],
}

_RESOLVES: Schema = {
    "type": "record",
    "name": "Resolves",
    "fields": [
        {"name": "finding", "type": "string"},
        {"name": "tagged_snapshot_id", "type": ["null", "long"]},
        {"name": "base_snapshot_id", "type": ["null", "long"]},
        {"name": "covers_offset", "type": "long"},
    ],
}

_REPLACES: Schema = {
    "type": "record",
    "name": "Replaces",
    "fields": [
        {"name": "base_snapshot_id", "type": ["null", "long"]},
        {"name": "gone", "type": {"type": "array", "items": "ManifestRef"}},
        {"name": "kept", "type": {"type": "array", "items": "ManifestRef"}},
    ],
}

_TO_MERGE: Schema = {
    "type": "record",
    "name": "ToMerge",
    "fields": [
        {"name": "key", "type": {"type": "array", "items": "int"}},
        {"name": "order", "type": ["null", "int"]},
        {"name": "keeps_old", "type": "boolean"},
        {"name": "soft", "type": "boolean"},
    ],
}

_RANGE_READ: Schema = {
    "type": "record",
    "name": "RangeRead",
    "fields": [
        {"name": "topic", "type": "string"},
        {"name": "partition", "type": "int"},
        {"name": "start", "type": "long"},
        {"name": "end", "type": "long"},
        {"name": "rows", "type": "long"},
    ],
}

_RANGES: Schema = {"type": "array", "items": _RANGE_READ}

_RANGE_JOB: Schema = {
    "type": "record",
    "name": "RangeJob",
    "fields": [
        {"name": "batch_id", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "resolves", "type": "boolean"},
        {"name": "batches", "type": "long"},
        {"name": "ranges", "type": _RANGES},
        {"name": "replaces", "type": "boolean", "default": False},
        {"name": "letters", "type": "boolean", "default": False},
        {"name": "topic_ids", "type": {"type": "map", "values": "string"}, "default": {}},
    ],
}

_BY_PARTITION: Schema = {"type": "map", "values": {"type": "array", "items": "long"}}
_STRING_LIST: Schema = {"type": "array", "items": "string"}


def _event(name: str, fields: list[Schema]) -> Schema:
    return {"type": "record", "name": name, "namespace": "calve", "fields": [*_COMMON, *fields]}


def _strings(*names: str) -> list[Schema]:
    return [{"name": name, "type": "string"} for name in names]


SCHEMAS: dict[str, Schema] = {
    "PIPELINE_BOUND": _event(
        "PIPELINE_BOUND", _strings("pipeline", "deployment", "catalog_fingerprint", "cluster_id", "control_topic_id")
    ),
    "START_COMMIT": _event("START_COMMIT", _strings("batch_id", "predecessor", "file_prefix", "config_fingerprint")),
    "DATA_WRITTEN": _event(
        "DATA_WRITTEN",
        [
            *_strings("batch_id", "table", "table_uuid"),
            {"name": "schema_id", "type": "int"},
            {"name": "manifests", "type": {"type": "array", "items": _MANIFEST}},
            {"name": "resolves", "type": ["null", _RESOLVES], "default": None},
            {"name": "replaces", "type": ["null", _REPLACES], "default": None},
            {"name": "removes", "type": "boolean", "default": False},
            {"name": "changes", "type": ["null", "long"], "default": None},
            {"name": "to_merge", "type": ["null", _TO_MERGE], "default": None},
        ],
    ),
    "DATA_COMPLETE": _event(
        "DATA_COMPLETE",
        [
            *_strings("batch_id", "predecessor", "kind"),
            {"name": "tables", "type": _STRING_LIST},
            {"name": "totals", "type": {"type": "map", "values": "long"}},
            {"name": "topic_ids", "type": {"type": "map", "values": "string"}},
            {"name": "positions", "type": _BY_PARTITION},
            {"name": "through_ms", "type": _BY_PARTITION},
            {"name": "through_is_estimate", "type": "boolean"},
            {"name": "value_bytes_by_topic", "type": {"type": "map", "values": "long"}},
            {"name": "records_by_topic", "type": {"type": "map", "values": "long"}},
            {"name": "ledger_manifest", "type": ["null", "string"], "default": None},
            {"name": "ranges", "type": _RANGES, "default": []},
            {"name": "dropped", "type": {"type": "map", "values": {"type": "map", "values": "long"}}, "default": {}},
        ],
    ),
    "COMMIT_TO_TABLE": _event(
        "COMMIT_TO_TABLE",
        [
            *_strings("table", "table_uuid"),
            {"name": "snapshot_id", "type": "long"},
            {"name": "stored_offset", "type": "long"},
            {"name": "valid_through_ms", "type": ["null", "long"]},
            {"name": "control_topic_id", "type": "string", "default": ""},
        ],
    ),
    "COMMIT_COMPLETE": _event(
        "COMMIT_COMPLETE",
        [
            *_strings("commit_id"),
            {"name": "through_offset", "type": "long"},
            {"name": "tables_behind", "type": _STRING_LIST},
            {"name": "valid_through_ms", "type": ["null", "long"]},
        ],
    ),
    "CHECKPOINT": _event(
        "CHECKPOINT",
        [
            {"name": "up_to_offset", "type": "long"},
            *_strings("pipeline", "deployment", "catalog_fingerprint", "cluster_id", "control_topic_id"),
            {"name": "paused_by", "type": ["null", "string"]},
            {"name": "last_complete_batch_id", "type": ["null", "string"]},
            {"name": "positions", "type": _BY_PARTITION},
            {"name": "topic_ids", "type": {"type": "map", "values": "string"}},
            {"name": "through_ms", "type": _BY_PARTITION},
            {"name": "told", "type": {"type": "map", "values": {"type": "map", "values": "long"}}},
            {"name": "open_findings", "type": _STRING_LIST},
            {"name": "paused_reason", "type": "string", "default": ""},
            {"name": "paused_at_ms", "type": "long", "default": 0},
            {"name": "resumed_by", "type": ["null", "string"], "default": None},
            {"name": "resumed_at_ms", "type": "long", "default": 0},
            {"name": "resolved_at_ms", "type": "long", "default": 0},
            {"name": "valid_through_ms", "type": "long", "default": 0},
            {"name": "begins", "type": _BY_PARTITION, "default": {}},
            {"name": "former_positions", "type": _BY_PARTITION, "default": {}},
            {"name": "former_topic_ids", "type": {"type": "map", "values": "string"}, "default": {}},
            {"name": "batches", "type": "long", "default": 0},
            {"name": "last_events", "type": {"type": "map", "values": _STRING_LIST}, "default": {}},
            {"name": "fed", "type": {"type": "map", "values": "long"}, "default": {}},
            {"name": "range_jobs", "type": {"type": "array", "items": _RANGE_JOB}, "default": []},
            {"name": "delete_below", "type": "long", "default": -1},
            {"name": "parts", "type": "int", "default": 0},
        ],
    ),
    "CHECKPOINT_PART": _event(
        "CHECKPOINT_PART",
        [*_strings("checkpoint_id"), {"name": "range_jobs", "type": {"type": "array", "items": _RANGE_JOB}}],
    ),
    "PAUSED": _event("PAUSED", _strings("by", "reason")),
    "RESUMED": _event("RESUMED", _strings("by")),
    "RESOLVED": _event("RESOLVED", _strings("finding", "subject", "choice", "by")),
    "BATCH_ABANDONED": _event("BATCH_ABANDONED", _strings("batch_id")),
}

PARTED_READER = 6
"""Readers below this would take a checkpoint for whole without its parts."""

MIN_READER: dict[str, int] = {**dict.fromkeys(SCHEMAS, 1), "CHECKPOINT_PART": PARTED_READER}

REPLACING_READER = 2
"""Readers below this would append the rows of a range job that replaces others."""

REMOVING_READER = 3
"""Readers below this would leave dead letters that a range job has moved into tables."""

CHANGING_READER = 4
"""Readers below this would put deletes into one snapshot with rows that they are for."""

MERGING_READER = 5
"""Readers below this might put late changes over newer rows, or what stands for an old value into the table."""

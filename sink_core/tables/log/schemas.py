"""Avro schemas of the events that a sink has beside those of every kind, and of what it adds to these."""

from __future__ import annotations

from calve.sink_core.control import schemas
from calve.sink_core.control.schemas import BY_PARTITION, STRING_MAP, Fields, Schema, strings

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
        {"name": "topic_ids", "type": STRING_MAP, "default": {}},
    ],
}

_STRING_LIST: Schema = {"type": "array", "items": "string"}
_COUNTS: Schema = {"type": "map", "values": "long"}

START_COMMIT: Fields = strings("batch_id", "predecessor", "file_prefix", "config_fingerprint")
DATA_WRITTEN: Fields = [
    *strings("batch_id", "table", "table_uuid"),
    {"name": "schema_id", "type": "int"},
    {"name": "manifests", "type": {"type": "array", "items": _MANIFEST}},
    {"name": "resolves", "type": ["null", _RESOLVES], "default": None},
    {"name": "replaces", "type": ["null", _REPLACES], "default": None},
    {"name": "removes", "type": "boolean", "default": False},
    {"name": "changes", "type": ["null", "long"], "default": None},
    {"name": "to_merge", "type": ["null", _TO_MERGE], "default": None},
]
DATA_COMPLETE: Fields = [
    *strings("batch_id", "predecessor", "kind"),
    {"name": "tables", "type": _STRING_LIST},
    {"name": "totals", "type": _COUNTS},
    {"name": "topic_ids", "type": STRING_MAP},
    {"name": "positions", "type": BY_PARTITION},
    {"name": "through_ms", "type": BY_PARTITION},
    {"name": "through_is_estimate", "type": "boolean"},
    {"name": "value_bytes_by_topic", "type": _COUNTS},
    {"name": "records_by_topic", "type": _COUNTS},
    {"name": "ledger_manifest", "type": ["null", "string"], "default": None},
    {"name": "ranges", "type": _RANGES, "default": []},
    {"name": "dropped", "type": {"type": "map", "values": _COUNTS}, "default": {}},
    {"name": "written_by", "type": STRING_MAP, "default": {}},
    {"name": "silent", "type": STRING_MAP, "default": {}},
    {"name": "instant_ms", "type": "long", "default": 0},
]
COMMIT_TO_TABLE: Fields = [
    *strings("table", "table_uuid"),
    {"name": "snapshot_id", "type": "long"},
    {"name": "stored_offset", "type": "long"},
    {"name": "valid_through_ms", "type": ["null", "long"]},
    {"name": "control_topic_id", "type": "string", "default": ""},
]
COMMIT_COMPLETE: Fields = [
    *strings("commit_id"),
    {"name": "through_offset", "type": "long"},
    {"name": "tables_behind", "type": _STRING_LIST},
    {"name": "valid_through_ms", "type": ["null", "long"]},
    {"name": "reasons", "type": STRING_MAP, "default": {}},
    {"name": "held", "type": STRING_MAP, "default": {}},
]
CHECKPOINT: Fields = [
    *schemas.CHECKPOINT,
    {"name": "through_ms", "type": BY_PARTITION},
    {"name": "reported", "type": {"type": "map", "values": _COUNTS}},
    {"name": "open_findings", "type": _STRING_LIST},
    {"name": "valid_through_ms", "type": "long", "default": 0},
    {"name": "begins", "type": BY_PARTITION, "default": {}},
    {"name": "batches", "type": "long", "default": 0},
    {"name": "last_events", "type": {"type": "map", "values": _STRING_LIST}, "default": {}},
    {"name": "fed", "type": _COUNTS, "default": {}},
    {"name": "range_jobs", "type": {"type": "array", "items": _RANGE_JOB}, "default": []},
    {"name": "parts", "type": "int", "default": 0},
    {"name": "instant_ms", "type": "long", "default": 0},
]
CHECKPOINT_PART: Fields = [
    *strings("checkpoint_id"),
    {"name": "range_jobs", "type": {"type": "array", "items": _RANGE_JOB}},
]

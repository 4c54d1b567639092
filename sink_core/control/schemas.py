"""Avro schemas of the events that every kind of pipeline has, and what those of a kind are made of.

A field may be added with a default, and never be removed or change its meaning; a change that an older reader would
misread raises `min_reader` of that event. Documented for users in `docs/events.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MIN_READER_KEY = "calve.min-reader"
"""Key in the Avro file metadata of every message."""

KIND_KEY = "calve.kind"
"""Beside it: the kind of the pipeline that wrote it. Pipelines of two kinds may have the same name."""

Schema = dict[str, Any]
Fields = Sequence[Schema]


def strings(*names: str) -> list[Schema]:
    return [{"name": name, "type": "string"} for name in names]


STRING_MAP: Schema = {"type": "map", "values": "string"}
BY_PARTITION: Schema = {"type": "map", "values": {"type": "array", "items": "long"}}

_COMMON = [
    *strings("event_id", "pipeline_id"),
    {"name": "written_at_ms", "type": "long"},
    *strings("calve_version"),
]
_BINDING = strings("pipeline", "deployment", "fingerprint", "cluster_id", "control_topic_id")

PIPELINE_BOUND: Fields = _BINDING
BATCH_ABANDONED: Fields = strings("batch_id")
PAUSED: Fields = strings("by", "reason")
RESUMED: Fields = strings("by")
RESOLVED: Fields = strings("finding", "subject", "choice", "by")
CHECKPOINT: Fields = [
    {"name": "up_to_offset", "type": "long"},
    *_BINDING,
    {"name": "paused_by", "type": ["null", "string"]},
    {"name": "last_complete_batch_id", "type": ["null", "string"]},
    {"name": "positions", "type": BY_PARTITION},
    {"name": "topic_ids", "type": STRING_MAP},
    {"name": "paused_reason", "type": "string", "default": ""},
    {"name": "paused_at_ms", "type": "long", "default": 0},
    {"name": "resumed_by", "type": ["null", "string"], "default": None},
    {"name": "resumed_at_ms", "type": "long", "default": 0},
    {"name": "answer", "type": "string", "default": ""},
    {"name": "former_positions", "type": BY_PARTITION, "default": {}},
    {"name": "former_topic_ids", "type": STRING_MAP, "default": {}},
    {"name": "delete_below", "type": "long", "default": -1},
]
"""A kind that has more to say adds its own fields."""


def of_event(name: str, fields: Fields) -> Schema:
    """The schema of the event `name`, which has `fields` beside those of every event."""
    return {"type": "record", "name": name, "namespace": "calve", "fields": [*_COMMON, *fields]}

"""The dead letters of a batch as messages of a topic, with the headers that Kafka Connect gives them.

They are read back from the batch's own files, a few rows at a time: what tasks hand to the driver stays descriptions of
files, however many letters there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from calve.sink_core.control.letters import Letters, Message
from calve.sink_core.iceberg.handles import Table
from calve.sink_core.iceberg.read.rows import rows_named
from calve.sink_core.tables.batch import TableOutput

PREFIX = "__connect.errors."
BATCH, LEFT_OUT = "calve.batch", "calve.left.out"
"""Headers of ours: the batch that the record was of, and why a message has none of its record."""

STAGES = {"decode": "VALUE_CONVERTER", "transform": "TRANSFORMATION", "fit": "TASK_PUT"}
"""Connect's words for ours."""

_EXCEPTION = "calve.BadRecord"
_SHARE_OF_ERROR = 2
_ROWS = 64


def dead_letters_of(output: TableOutput, table: Table, topic: str, most_bytes: int, pipeline: str) -> Letters:
    """The dead letters that a batch has written to their `table`, to be told to `topic` as it is published.

    `most_bytes` is the topic's `max.message.bytes`.
    """

    def messages() -> Iterator[Message]:
        return (message_of(row, pipeline, most_bytes, output.table) for row in _rows(output, table))

    return Letters(topic, output.rows, most_bytes, messages)


def message_of(row: dict[str, Any], pipeline: str, most_bytes: int, table: str) -> Message:
    """The record as it was, its own headers first; `row` is one of the dead-letter `table`.

    Of a record that is larger than `most_bytes` with these headers the message says only where it is.
    """
    own = [(header["key"], header["value"]) for header in row["headers"] or ()]
    ours = [(name, str(value).encode()) for name, value in _told(row, pipeline).items()]
    timestamp_ms = 0 if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
    whole = Message(row["key"], row["value"], (*own, *ours), timestamp_ms)
    if whole.size <= most_bytes:
        return whole
    why = f"{whole.size:,} bytes are more than the topic's max.message.bytes ({most_bytes:,}); the record is in {table}"
    # An error may quote the record.
    short = [(name, value[: most_bytes // _SHARE_OF_ERROR]) for name, value in ours]
    return Message(None, None, (*short, (LEFT_OUT, why.encode())), timestamp_ms)


def _told(row: dict[str, Any], pipeline: str) -> dict[str, object]:
    return {
        f"{PREFIX}topic": row["topic"],
        f"{PREFIX}partition": row["partition"],
        f"{PREFIX}offset": row["offset"],
        f"{PREFIX}connector.name": pipeline,
        f"{PREFIX}stage": STAGES.get(row["stage"], row["stage"].upper()),
        f"{PREFIX}exception.class.name": _EXCEPTION,
        f"{PREFIX}exception.message": row["error"],
        BATCH: row["batch_id"],
    }


def _rows(output: TableOutput, table: Table) -> Iterator[dict[str, Any]]:
    for rows in rows_named(table, output.manifests, at_once=_ROWS):
        yield from rows.to_pylist()

"""Containers as this version writes them, and those that only look like it."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from calve.sink_core.control.container import Containers
from calve.sink_core.control.schemas import KIND_KEY, MIN_READER_KEY, RESUMED, of_event

NAME = "RESUMED"
SCHEMA = of_event(NAME, RESUMED)
CONTAINERS = Containers({NAME: SCHEMA}, "toy")
RECORD: dict[str, Any] = {"event_id": "e", "pipeline_id": "p", "written_at_ms": 1, "calve_version": "1", "by": "me"}


def container(*records: dict[str, Any], codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(SCHEMA), records, codec=codec, metadata={MIN_READER_KEY: "1"})
    return out.getvalue()


def test_what_is_packed_is_what_fastavro_writes_and_reads() -> None:
    value = CONTAINERS.packed(NAME, RECORD, min_reader=3)
    reader = fastavro.reader(io.BytesIO(value))
    assert (reader.metadata[MIN_READER_KEY], reader.metadata[KIND_KEY], list(reader)) == ("3", "toy", [RECORD])
    found = CONTAINERS.opened(value)
    assert (found.name, found.min_reader, found.kind, found.record()) == (NAME, 3, "toy", RECORD)


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_any_codec_is_read(codec: str) -> None:
    assert CONTAINERS.opened(container(RECORD, codec=codec)).record() == RECORD


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(container(), id="no record"),
        pytest.param(container(RECORD, RECORD), id="two records"),
        pytest.param(container(RECORD)[:-1], id="cut off"),
        pytest.param(container(RECORD)[:-1] + b"?", id="another mark of its end"),
        pytest.param(container(RECORD) + b"?", id="something after it"),
    ],
)
def test_a_container_that_does_not_hold_one_record(value: bytes) -> None:
    found = CONTAINERS.opened(value)
    with pytest.raises((ValueError, EOFError)):
        found.record()


@pytest.mark.parametrize("value", [b"", b"Obj", b"Obk" + container(RECORD)[3:]])
def test_what_is_no_container(value: bytes) -> None:
    with pytest.raises((ValueError, EOFError)):
        CONTAINERS.opened(value)

"""What producers may send to harm: it becomes a dead letter or a row, and its neighbours arrive in the same batch.

In this process: a worker that a record could crash would end the tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.codes import raises
from tests.e2e.faults.processes import ROOT
from tests.pipelines import COLUMNS, Flow, record
from tests.raw_headers import produce_with_headers
from tests.support import TopicFactory

DEPTH = 100_000
MB = 1024 * 1024
MAPS = {**COLUMNS, "m": "map<string, string>"}
SENDING = {"message.max.bytes": 104_800_000, "queue.buffering.max.kbytes": 2_000_000, "compression.type": "none"}
TOO_DEEP = "recursion depth"
UTF_8 = "'utf-8' codec can't decode"
ID, NOT_JSON = r"\bid\b", r"\bJSON\b"


@dataclass(frozen=True)
class Hostile:
    """A value; a pattern of its dead letter's error in a table without maps and in one with, None if it is stored."""

    value: bytes
    plain: str | None
    maps: str | None


def nested(opening: bytes, closing: bytes, within: bytes = b"") -> bytes:
    return opening * DEPTH + within + closing * DEPTH


HOSTILE = {
    "deep list in a column": Hostile(b'{"text":' + nested(b"[", b"]") + b"}", r"\btext\b", TOO_DEEP),
    "deep list elsewhere": Hostile(b'{"x":' + nested(b"[", b"]") + b"}", None, TOO_DEEP),
    "deep object in a column": Hostile(nested(b'{"id":', b"}", b"1"), ID, TOO_DEEP),
    "deep object elsewhere": Hostile(nested(b'{"x":', b"}", b"1"), None, TOO_DEEP),
    "deep and never closed": Hostile(b'{"x":' * DEPTH + b"}", "Invalid value", TOO_DEEP),
    "not UTF-8": Hostile(b'{"text":"\xff\xfe"}', UTF_8, UTF_8),
    "not UTF-8 elsewhere": Hostile(b'{"x":"\xc3\x28"}', UTF_8, UTF_8),
    "a surrogate in UTF-8": Hostile(b'{"text":"\xed\xa0\x80"}', UTF_8, UTF_8),
    "half a surrogate pair": Hostile(b'{"text":"\\ud800"}', "surrogate", "surrogate"),
    "UTF-16": Hostile('{"id":1}'.encode("utf-16"), NOT_JSON, NOT_JSON),
    "NUL": Hostile(b'{"text":"a\x00b"}', "closing quotation mark", "control character"),
    "NUL behind": Hostile(b'{"id":1}\x00', NOT_JSON, NOT_JSON),
    "NUL as an escape": Hostile(b'{"text":"a\\u0000b"}', None, None),
    "NUL in a name": Hostile(b'{"te\\u0000xt":"b"}', None, None),
    "a key twice": Hostile(b'{"id":1,"id":2}', ID, ID),
    "NaN": Hostile(b'{"id":NaN}', rf"{ID}.*\bNaN\b.*\blong\b", rf"{ID}.*\bNaN\b.*\blong\b"),
    "Infinity": Hostile(b'{"id":-Infinity}', rf"{ID}.*-Infinity\b.*\blong\b", rf"{ID}.*-Infinity\b.*\blong\b"),
    "a number of a million digits": Hostile(b'{"id":' + b"9" * 1_000_000 + b"}", rf"{ID}.*999", rf"{ID}.*999"),
    "a number beyond double": Hostile(b'{"id":1e400}', "Number too big", "Number too big"),
    "nothing": Hostile(b"", NOT_JSON, NOT_JSON),
    "two records in one": Hostile(b'{"id":1}\n{"id":2}', r"\b2\b.*\bJSON\b", "Extra data"),
    "a hundred thousand names": Hostile(b"{" + b",".join(b'"k%d":1' % i for i in range(DEPTH)) + b"}", None, None),
}
KEYS = [b"\xff\xfe", b"", b"\x00", b"k" * 100_000]


@pytest.mark.parametrize("columns", [COLUMNS, MAPS], ids=["without maps", "with maps"])
def test_hostile_records_are_set_aside_and_their_neighbours_stored(
    columns: Mapping[str, str], tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    topic = kafka_topic(1, {"max.message.bytes": str(8 * MB)})
    flow = Flow.create(tmp_path, broker.bootstrap, topic, auto_create={"columns": columns})
    values = [value for i, hostile in enumerate(HOSTILE.values()) for value in (hostile.value, record(i + 10))]
    keys = [KEYS[i % len(KEYS)] for i in range(len(values))]
    send(flow, values, keys=keys)
    assert len(flow.run().batches) == 1

    letters = {row["offset"] // 2: row for row in flow.rows(flow.pipeline.dead_letter_table)}
    for i, (name, hostile) in enumerate(HOSTILE.items()):
        words = hostile.maps if "m" in columns else hostile.plain
        assert (words is not None) == (i in letters), name
        if words is not None:
            assert re.search(words, letters[i]["error"]), name
            assert (letters[i]["value"], letters[i]["key"]) == (hostile.value, keys[2 * i]), name
    stored = {row["_kafka"]["offset"] // 2 for row in flow.rows() if row["_kafka"]["offset"] % 2 == 0}
    assert stored == set(range(len(HOSTILE))) - letters.keys()
    assert [row["id"] for row in flow.rows() if row["_kafka"]["offset"] % 2] == [i + 10 for i in range(len(HOSTILE))]
    proven(flow)


@pytest.mark.usefixtures("each_delivery")
def test_headers_of_any_bytes_are_kept_or_said_to_be_left_out(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    bad, good = b"{ broken", record(7)
    odd = [(b"name", b"\xff\x00"), (b"", b""), (b"name", b"again")]
    unnameable = [(b"fine", b"1"), (b"\xff\xfe", b"2")]
    for value, headers in ((bad, odd), (bad, unnameable), (good, unnameable), (bad, [])):
        produce_with_headers(flow.bootstrap, flow.topic, value, headers)
    # Enough for an interpreter to have specialised what it does for each.
    send(flow, [bad] * 100)
    produce_with_headers(flow.bootstrap, flow.topic, bad, unnameable)
    flow.run()
    assert flow.ids() == [7]
    kept, left_out, without, *others, last = sorted(
        flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"]
    )
    assert kept["headers"] == [{"key": name.decode(), "value": content} for name, content in odd]
    assert "headers" not in kept["error"]
    assert left_out["headers"] == []
    assert re.search(r"\bheaders\b.*\bUTF-8\b", left_out["error"])
    assert (without["headers"], without["value"]) == ([], bad)
    assert len(others) == 100
    assert last["error"] == left_out["error"]
    proven(flow)


BASE_MB = 400
"""What a process needs for libraries, buffers and batches of small records: 250 as measured, and some."""


def test_large_headers_do_not_fill_the_memory(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    records, names = 1_500, 1_000
    topic = kafka_topic(1, {"max.message.bytes": str(4 * MB)})
    flow = Flow.create(tmp_path, broker.bootstrap, topic)
    headers = [(f"h{i}", b"x" * 1_000) for i in range(names)]
    send(flow, [record(i) if i % 100 else b"{ broken" for i in range(records)], headers)
    assert run_and_measure(flow) < BASE_MB < records * names / 1_000
    assert flow.ids() == [i for i in range(records) if i % 100]
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert len(letters) == records / 100
    assert all([(h["key"], h["value"]) for h in letter["headers"]] == headers for letter in letters)


def test_records_as_large_as_a_broker_takes_are_stored_or_set_aside(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    size = 104_000_000
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"max.message.bytes": "104800000"}))
    bad = b'{"id":"' + b"9" * size + b'"}'
    good = json.dumps({"id": 2, "text": "x" * size}).encode()
    send(flow, [record(1), bad, record(3), good, record(4)])
    assert run_and_measure(flow) < BASE_MB + 12 * size / 1_000_000
    assert {row["id"]: len(row["text"]) for row in flow.rows()} == {1: 2, 2: size, 3: 2, 4: 2}
    [letter] = flow.rows(flow.pipeline.dead_letter_table)
    assert (letter["value"] == bad, letter["offset"]) == (True, 1)
    assert re.search(ID, letter["error"])
    proven(flow)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_larger_than_the_client_accepts_stops_the_run_and_is_read_once_it_does(
    codec: str, tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    limited = {"receive.message.max.bytes": 20 * MB, "fetch.max.bytes": 16 * MB}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1, {"max.message.bytes": "104800000"}), kafka=limited)
    send(flow, [record(1)])
    flow.run()
    send(flow, [record(2), json.dumps({"id": 3, "text": "x" * 30 * MB}).encode(), record(4)], codec=codec)
    with raises(Code.TOO_LARGE, "receive.message.max.bytes"):
        flow.run()
    assert flow.ids() == [1]
    larger = flow.but(kafka={})
    larger.run()
    assert flow.ids() == [1, 2, 3, 4]
    proven(larger)


ESCAPES = ["../../etc", "..", ".", "a/b", "/etc", "%2e%2e", "a\0b", "", " ", "=", "s=1/..", "ü" * 100, "x" * 5_000]


def test_partition_values_from_records_stay_below_the_table(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    by_value = {"columns": COLUMNS, "partition_by": ["text"]}
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create=by_value)
    values = [json.dumps({"id": i, "text": text}).encode() for i, text in enumerate(ESCAPES)]
    support.produce(flow.bootstrap, flow.topic, values)
    flow.run()
    assert {row["id"]: row["text"] for row in flow.rows()} == dict(enumerate(ESCAPES))
    data = (Path(flow.load_table().location().removeprefix("file://")) / "data").resolve()
    named = [Path(file["file_path"].removeprefix("file://")) for file in flow.load_table().inspect.files().to_pylist()]
    assert len(named) == len(ESCAPES)
    for path in named:
        assert path.resolve() == path
        assert path.relative_to(data).parts[:-2] == ()
    assert set(files_below(flow.lake / "warehouse")) == set(files_below(tmp_path, "*.parquet")) | set(
        files_below(flow.lake / "warehouse" / "db" / "events" / "metadata")
    ) | set(files_below(flow.lake / "warehouse" / "calve"))
    proven(flow)


def files_below(directory: Path, pattern: str = "*") -> Iterator[Path]:
    return (path for path in directory.rglob(pattern) if path.is_file())


@pytest.mark.parametrize(
    "name", ["../db.events", "db/../x.events", "db.ev/ents", "db.ev\0ents", "db..events", "/etc.passwd", "db.events\n"]
)
def test_a_table_name_that_is_a_path_is_refused(name: str, tmp_path: Path) -> None:
    flow = Flow.create(tmp_path, "127.0.0.1:1", "t", tables=(name,))
    with raises(Code.SETTINGS, "tables.0.name", repr(name)):
        _ = flow.pipeline


def send(
    flow: Flow,
    values: Sequence[bytes],
    headers: list[tuple[str, bytes]] | None = None,
    *,
    keys: Sequence[bytes] = (),
    codec: str = "none",
) -> None:
    producer = Producer({"bootstrap.servers": flow.bootstrap, **SENDING, "compression.type": codec})
    failed: list[object] = []
    for value, key in zip_longest(values, keys):
        producer.produce(
            flow.topic, value, key, headers=headers, partition=0, on_delivery=lambda e, _: e and failed.append(e)
        )
    assert producer.flush(120) == 0
    assert failed == []


def run_and_measure(flow: Flow) -> float:
    """The peak memory in MB of a process that runs the pipeline's tasks itself."""
    command = [sys.executable, "-m", "tests.integration.in_one_process", str(flow.pipeline.path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def proven(flow: Flow) -> None:
    with flow.session() as session:
        report: Any = verify(session, deep=True)
    assert report.violations == ()

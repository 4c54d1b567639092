"""Files that grow, into a real broker's topics."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.failpoints import VARIABLE
from tests import support
from tests.codes import finding, names, raises
from tests.gate import every_second
from tests.launch import calve, forked
from tests.object_store import BUCKET, KEY, SECRET, ObjectStore
from tests.source_flow import Made, source_file


@dataclass(frozen=True)
class Grown(Made):
    """A pipeline of files."""

    def change(self, *without: str, **files: Any) -> Grown:
        """Another value for keys of `files` in the pipeline file, and none of those on top of it."""
        config = yaml.safe_load(self.file.read_text())
        config["source"]["files"].update(files)
        self.file.write_text(yaml.safe_dump({key: value for key, value in config.items() if key not in without}))
        return self

    def grow(self, name: str, text: str) -> Path:
        with (file := self.folder / name).open("a") as opened:
            opened.write(text)
        return file

    def records(self) -> list[tuple[str | None, Any]]:
        support.until_stable(self.broker.bootstrap, self.topic)
        found = support.messages(self.broker.bootstrap, self.topic)
        return [(key.decode() if (key := m.key()) is not None else None, json.loads(m.value() or b"")) for m in found]

    def offsets(self) -> dict[str, Any]:
        """By file, as a consumer of the offsets topic has them that knows Connect's form."""
        found = dict[str, Any]()
        for message in support.messages(self.broker.bootstrap, self.pipeline.offsets_topic):
            connector, partition = json.loads(message.key() or b"")
            assert connector == self.pipeline.name
            found[partition["file"]] = json.loads(message.value() or b"null")
        return found


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Grown:
    topic = support.unique("files")
    (folder := tmp_path / "in").mkdir()
    config = {
        "name": topic.replace("-", "_"),
        "kind": "source",
        "source": {"files": {"path": str(folder), "format": "json_lines", "topic": topic, "key": ["n"]}},
        "target": {"kafka": "here", "partitions": 1},
        "dead_letters": {"topic": f"{topic}.dead"},
    }
    return Grown(broker, source_file(broker, tmp_path, config), folder, topic)


def lines(*numbers: int) -> str:
    return "".join(f'{{"n": {number}}}\n' for number in numbers)


def test_files_that_grow_give_each_line_once(made: Grown) -> None:
    made.grow("a.jsonl", lines(1, 2) + "bad\n\n" + '{"n": 3')
    made.grow("b.jsonl", lines(10))
    report = made.run()
    assert (report.ended, report.records) == ("caught up", 3)
    [batch] = report.batches
    assert (batch.moved, batch.dropped, batch.dead_letters) == (2, 1, 1)
    assert made.values(f"{made.topic}.dead") == ["bad"]
    [letter] = support.messages(made.broker.bootstrap, f"{made.topic}.dead")
    headers = dict(letter.headers() or [])
    assert headers["calve.error"] == b"Expecting value: line 1 column 1 (char 0)"
    assert headers["calve.where"] == b'{"file":"a.jsonl","line":3,"position":18}'
    # Half a line is nothing to read.
    assert made.run().batches == []

    made.grow("a.jsonl", "}\n" + lines(4))
    made.grow("c.jsonl", lines(20))
    assert made.run().records == 3
    assert sorted(made.values()) == sorted(lines(1, 2, 3, 4, 10, 20).splitlines())
    assert dict(made.records()) == {f'{{"n":{n}}}': {"n": n} for n in (1, 2, 3, 4, 10, 20)}
    assert {name: each["position"] for name, each in made.offsets().items()} == {
        name: (made.folder / name).stat().st_size for name in ("a.jsonl", "b.jsonl", "c.jsonl")
    }
    assert "0 bytes" in calve("check", made.file).stdout


def test_csv_is_read_by_whole_records(made: Grown) -> None:
    made.change(path=f"{made.folder}/*.csv", format="csv")
    made.grow("a.csv", '\ufeffn,text\n1,"two\nlines"\n2\n3,"open\n')
    assert made.run().records == 1
    made.grow("a.csv", 'no more"\n')
    assert made.run().records == 1
    assert made.records() == [
        ('{"n":"1"}', {"n": "1", "text": "two\nlines"}),
        ('{"n":"3"}', {"n": "3", "text": "open\nno more"}),
    ]
    assert made.values(f"{made.topic}.dead") == ["2"]


def test_parquet_is_read_by_rows(made: Grown) -> None:
    made.change(path=f"{made.folder}/*.parquet", format="parquet")
    pq.write_table(pa.table({"n": range(2500)}), made.folder / "a.parquet", row_group_size=1100)
    assert made.run().records == 2500
    assert [value["n"] for _, value in made.records()] == list(range(2500))
    assert (made.offsets()["a.parquet"]["position"], made.run().batches) == (2500, [])


def test_an_address_of_fsspec_is_read_as_a_folder_is(made: Grown) -> None:
    memory, folder = fsspec.filesystem("memory"), f"/{made.topic}"
    made.change(path=f"memory:/{folder}/*.jsonl")
    memory.pipe(f"{folder}/a.jsonl", lines(1).encode())
    assert made.run().records == 1
    memory.pipe(f"{folder}/a.jsonl", lines(1, 2).encode())
    assert made.run().records == 1
    assert made.values() == ['{"n": 1}', '{"n": 2}']


def test_objects_that_are_replaced_by_longer_ones_are_read_on(made: Grown, tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "weed")
    store.directory.mkdir()
    store.start()
    try:
        options = {"key": KEY, "secret": SECRET, "endpoint_url": store.endpoint}
        made.change(path=f"s3://{BUCKET}/in/*.jsonl", options=options)
        # Another one than Calve's, as somebody else has who writes there.
        bucket = fsspec.filesystem("s3", **options, skip_instance_cache=True)
        assert made.run().batches == []
        bucket.pipe(f"{BUCKET}/in/a.jsonl", lines(1).encode())
        assert made.run().records == 1
        bucket.pipe(f"{BUCKET}/in/a.jsonl", lines(1, 2).encode())
        assert made.run().records == 1
        assert made.values() == ['{"n": 1}', '{"n": 2}']
        offset = made.offsets()["a.jsonl"]
        assert (offset["position"], offset["etag"]) == (18, bucket.info(f"{BUCKET}/in/a.jsonl")["ETag"])
        bucket.pipe(f"{BUCKET}/in/a.jsonl", lines(3, 2).encode())
        with raises(finding("file-changed"), "a.jsonl"):
            made.run()
    finally:
        store.stop()


@pytest.mark.parametrize(
    ("text", "stored", "found"),
    [(lines(1), "18", "9"), (lines(7, 8, 9), "", "")],
    ids=["shrank", "another, and longer"],
)
def test_a_file_that_is_not_what_was_read_stops_with_both_values(
    text: str, stored: str, found: str, made: Grown
) -> None:
    made.grow("a.jsonl", lines(1, 2))
    made.grow("b.jsonl", lines(3))
    assert made.run().records == 3
    before = made.offsets()
    (made.folder / "a.jsonl").write_text(text)
    made.grow("b.jsonl", lines(4))
    with raises(finding("file-changed"), "a.jsonl") as raised:
        made.run()
    assert raised.value.stored != raised.value.found
    assert stored in raised.value.stored
    assert found in raised.value.found
    assert (len(made.values()), made.offsets()) == (3, before)
    (made.folder / "a.jsonl").write_text(lines(1, 2, 5))
    assert made.run().records == 2


def test_files_that_are_gone_for_long_lose_their_offsets_and_others_keep_theirs(made: Grown) -> None:
    made.change(forget_after="1h")
    for number, name in enumerate("abc"):
        made.grow(f"{name}.jsonl", lines(number))
    os.utime(made.folder / "a.jsonl", (1.0, 1.0))
    assert made.run().records == 3
    before = made.offsets()
    (made.folder / "a.jsonl").unlink()
    (made.folder / "b.jsonl").unlink()
    report = made.run()
    assert (report.ended, report.records, len(report.batches)) == ("caught up", 0, 1)
    assert made.offsets() == {**before, "a.jsonl": None}
    assert made.run().batches == []
    # What comes back before it is forgotten is not read again; what was forgotten is new.
    made.grow("b.jsonl", lines(1))
    made.grow("a.jsonl", lines(0))
    assert made.run().records == 1
    assert Counter(made.values()) == Counter({'{"n": 0}': 2, '{"n": 1}': 1, '{"n": 2}': 1})


def test_a_bad_row_without_a_topic_for_it_stops_and_names_its_place(made: Grown) -> None:
    made.change("dead_letters")
    made.grow("a.jsonl", lines(1) + "[]\n")
    with raises(Code.BAD_ROW, "a.jsonl", 9):
        made.run()
    assert (made.values(), made.offsets()) == ([], {})


def noise(size: int) -> str:
    """So many characters that no compression makes much fewer."""
    return random.Random(1).randbytes(size).hex()[:size]


def test_a_line_that_is_larger_than_the_topic_takes_is_a_dead_letter_and_others_go_on(made: Grown) -> None:
    large = f'{{"n": 2, "x": "{noise(3_000_000)}"}}'
    made.grow("a.jsonl", f"{lines(1)}{large}\n!{noise(3_000_000)}\n{lines(3)}")
    made.grow("b.jsonl", lines(4))
    report = made.run()
    assert (report.ended, report.records) == ("caught up", 3)
    assert [value["n"] for _, value in made.records()] == [1, 3, 4]
    found = [
        (dict(each.headers() or []), each.value() or b"")
        for each in support.messages(made.broker.bootstrap, f"{made.topic}.dead")
    ]
    places = [json.loads(headers["calve.where"]) for headers, _ in found]
    assert [(each["file"], each["line"]) for each in places] == [("a.jsonl", 2), ("a.jsonl", 3)]
    names(found[0][0]["calve.error"].decode(), "max.message.bytes", "1,048,588", made.topic)
    assert [int(headers["calve.cut"]) for headers, _ in found] == [len(large), 3_000_001]
    assert all(large.encode().startswith(raw) or raw.startswith(b"!") for _, raw in found)


def test_a_line_that_compresses_enough_is_no_dead_letter(made: Grown) -> None:
    made.grow("a.jsonl", f'{{"n": 1, "x": "{"x" * 3_000_000}"}}\n')
    assert made.run().records == 1
    assert made.records()[0][1]["n"] == 1


def test_a_topic_of_small_records_gets_many_of_them(made: Grown) -> None:
    """A batch has as many as its topic takes at once."""
    topics = AdminClient({"bootstrap.servers": made.broker.bootstrap})
    new = NewTopic(made.topic, 1, 1, config={"max.message.bytes": "20000", "compression.type": "producer"})
    topics.create_topics([new])[made.topic].result()
    made.grow("a.jsonl", "".join(f'{{"n": {n}, "x": "{noise(5_000)}{n}"}}\n' for n in range(300)))
    assert made.run().records == 300


def test_a_quote_that_is_not_closed_is_told_wherever_people_look(made: Grown) -> None:
    made.change(path=f"{made.folder}/*.csv", format="csv", key=[])
    file = made.grow("a.csv", 'id,note\n1,ok\n2,"5 inch\n3,a\n4,b\n')
    made.grow("b.csv", "id,note\n5,ok\n")
    made.grow("c.json", "{}")
    os.utime(file, (1.0, 1.0))
    report = made.run()
    assert [value["id"] for _, value in made.records()] == ["1", "5"]
    [blocker] = report.blockers
    assert (blocker.where, blocker.since_ms) == ("a.csv", 1000)
    names(blocker.why, 3)
    assert report.ended != "caught up"
    shown = json.loads(calve("status", made.file, "--json").stdout)
    assert [each["where"] for each in shown["blockers"]] == ["a.csv"]
    names(shown["waiting"], 1, "c.json")
    proof = json.loads(calve("verify", made.file, "--json").stdout)
    assert "a.csv" in {each["subject"] for each in proof["not_checked"]}


def test_a_file_whose_name_is_no_utf_8_is_told_and_others_are_read(made: Grown) -> None:
    Path(os.fsdecode(os.fsencode(made.folder) + b"/caf\xe9.jsonl")).write_text(lines(1))
    made.grow("b.jsonl", lines(2))
    report = made.run()
    assert [value["n"] for _, value in made.records()] == [2]
    assert ([blocker.where for blocker in report.blockers], report.ended != "caught up") == ([r"caf\xe9.jsonl"], True)
    for command in ("status", "check"):
        assert r"caf\xe9.jsonl" in calve(command, made.file).stdout


def test_a_file_that_is_damaged_within_is_told_by_the_run_and_others_are_read(made: Grown) -> None:
    made.change(path=f"{made.folder}/*.parquet", format="parquet")
    for name, first in (("a.parquet", 0), ("b.parquet", 10_000)):
        pq.write_table(pa.table({"n": range(first, first + 10)}), made.folder / name)
    column = pq.read_metadata(made.folder / "a.parquet").row_group(0).column(0)
    with (made.folder / "a.parquet").open("r+b") as opened:
        opened.seek(column.dictionary_page_offset)
        opened.write(b"\xff" * column.total_compressed_size)
    report = made.run()
    assert [value["n"] for _, value in made.records()] == [*range(10_000, 10_010)]
    assert [blocker.where for blocker in report.blockers] == ["a.parquet"]
    # The next run tries it again, and says so again.
    assert [blocker.where for blocker in made.run().blockers] == ["a.parquet"]


POINTS = ("slot.after-check", "source.after-offsets@2", "transaction.after-commit@2")


@pytest.mark.parametrize("point", every_second(POINTS))
def test_files_that_grow_while_a_run_is_killed_give_each_line_once(point: str, made: Grown) -> None:
    made.grow("a.jsonl", lines(*range(2500)) + "!\n" + '{"n": 2500')
    made.grow("b.jsonl", lines(*range(10_000, 10_003)))
    at, _, number = point.partition("@")
    killed = forked("run", made.file, **{VARIABLE: f"{at}=kill{'@' + number if number else ''}"})
    assert killed.returncode == -signal.SIGKILL
    made.grow("a.jsonl", "}\n" + lines(*range(2501, 2600)))
    made.grow("b.jsonl", lines(10_003))
    made.grow("c.jsonl", lines(20_000))
    done = calve("run", made.file)
    assert done.returncode == EXIT_DONE, done.stderr
    numbers = [value["n"] for _, value in made.records()]
    assert Counter(numbers) == Counter([*range(2600), *range(10_000, 10_004), 20_000])
    # Each file's in its order.
    assert [n for n in numbers if n < 10_000] == list(range(2600))
    assert made.values(f"{made.topic}.dead") == ["!"]
    assert {name: each["position"] for name, each in made.offsets().items()} == {
        name: (made.folder / name).stat().st_size for name in ("a.jsonl", "b.jsonl", "c.jsonl")
    }

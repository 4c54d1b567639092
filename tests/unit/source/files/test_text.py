"""Lines and records of CSV, from files that grow."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from itertools import chain
from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.files.plan import partition_of
from calve.sink_core.source.files.text import LOOK, whole_records
from calve.sink_core.source.files.values import MOST_BYTES, MOST_RECORD
from calve.sink_core.source.flat_map import FlatMap
from tests.codes import Naming, finding, names, raises, says
from tests.unit.source.files.reading import append, reading


def test_a_file_that_grows_gives_each_line_once_as_its_bytes_are(tmp_path: Path) -> None:
    lines, file = reading(tmp_path, key=["id"]), tmp_path / "a.jsonl"
    append(file, '{"id": 1,  "ü": 1.10}\r\n\n  \n{"id":2}\n')
    first = lines.read()
    assert [(record.key, record.value) for record in first] == [
        (b'{"id":1}', '{"id": 1,  "ü": 1.10}'.encode()),
        (b'{"id":2}', b'{"id":2}'),
    ]
    assert (lines.dropped, lines.offset("a.jsonl")["position"]) == (2, file.stat().st_size)
    assert lines.plan() == ()
    append(file, '{"id":3}\n')
    assert lines.values() == ['{"id":3}']


def test_a_last_line_waits_for_its_end(tmp_path: Path) -> None:
    lines, file = reading(tmp_path), tmp_path / "a.jsonl"
    append(file, '{"n":1}\n{"n":')
    assert lines.values() == ['{"n":1}']
    assert (lines.offset("a.jsonl")["position"], lines.plan()) == (8, ())
    assert lines.waiting() == "0 files, 0 bytes"
    append(file, "2}")
    assert lines.plan() == ()
    append(file, "\n")
    assert lines.waiting() == "1 file, 8 bytes"
    assert lines.values() == ['{"n":2}']


def test_a_file_that_has_settled_needs_no_last_newline(tmp_path: Path) -> None:
    lines, file = reading(tmp_path, settle="1h"), tmp_path / "a.jsonl"
    append(file, '{"n":1}\n{"n":2}', settled=True)
    assert lines.values() == ['{"n":1}', '{"n":2}']
    append(file, '\n{"n":3}', settled=True)
    assert lines.values() == ['{"n":3}']
    assert lines.dropped == 1
    append(file, "0", settled=True)
    with raises(finding("file-changed"), "a.jsonl", 23):
        lines.read()


def test_a_file_that_has_not_settled_is_left_alone(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", "{}\n")
    assert reading(tmp_path, settle="1h").plan() == ()
    assert len(reading(tmp_path).plan()) == 1


def test_lines_that_are_no_objects_are_bad_rows(tmp_path: Path) -> None:
    bad = [b"[1]", b"nothing", b'{"id":NaN}', b'{"id":1,"a":"\xff"}', b'{"a":1}', b'{"id":"\\ud800"}', b"[" * 100_000]
    lines = reading(tmp_path, key=["id"])
    append(tmp_path / "a.jsonl", b"\n".join([b'{"id":1}', *bad, b'{"id":2}', b""]))
    assert lines.values() == ['{"id":1}', '{"id":2}']
    assert [row.raw for row in lines.bad] == bad
    # What the libraries say is not ours to choose.
    others = ["Expecting value", "can't decode", "surrogates"]
    said = " | ".join(row.error for row in lines.bad)
    assert [part for part in others if part not in said] == []
    names(lines.bad[0].error, "list")
    names(lines.bad[2].error, "NaN")
    names(lines.bad[4].error, "id")
    assert dict(lines.bad[0].where) == {"file": "a.jsonl", "position": 9, "line": 2}


def test_the_mark_of_utf_8_is_no_part_of_a_first_line(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"n":1}\n')
    assert reading(tmp_path).values() == ['{"n":1}']
    (csv := tmp_path / "csv").mkdir()
    append(csv / "a.csv", b'\xef\xbb\xbf"i\nd"\n1\n')
    assert reading(csv, "csv", key=["i\nd"]).values() == ['{"i\\nd":"1"}']


def test_rows_are_small_enough_to_end_transactions_often(tmp_path: Path) -> None:
    lines, wide = reading(tmp_path), '{"x":"' + "x" * (MOST_BYTES // 2) + '"}\n'
    append(tmp_path / "a.jsonl", "".join(f'{{"n":{i}}}\n' for i in range(2500)) + 3 * wide)
    assert len(lines.read()) == 2503
    assert [len(rows.records) for rows in lines.rows] == [1000, 1000, 502, 1]
    # Each is a place to go on from.
    for rows, rest in zip(lines.rows, [1503, 503, 1, 0], strict=True):
        again = reading(tmp_path)
        again.stored = dict.fromkeys(lines.stored, rows.offset)
        assert len(again.read()) == rest


def test_a_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    for number in range(64):
        append(tmp_path / "a.csv", b'"' + b"x" * (MOST_BYTES // 2) + b'"\n' if number else b"id\n")
    csv = reading(tmp_path, "csv")
    [work] = csv.plan()
    with csv.opened() as source:
        tracemalloc.start()
        assert sum(len(rows.records) for rows in source.read(work) if isinstance(rows, Rows)) == 63
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < 12 * MOST_BYTES


def test_csv_goes_on_behind_its_header_and_counts_fields(tmp_path: Path) -> None:
    csv, file = reading(tmp_path, "csv", key=["id"]), tmp_path / "a.csv"
    append(file, 'id,name\r\n1,"Ann, ""A"""\r\n')
    append(file, '2\n3,x,y\n\n4,5" pipe\n5,"x"y\n')
    first = csv.read()
    assert [(record.key, json.loads(record.value or b"")) for record in first] == [
        (b'{"id":"1"}', {"id": "1", "name": 'Ann, "A"'}),
        (b'{"id":"4"}', {"id": "4", "name": '5" pipe'}),
    ]
    assert [row.raw for row in csv.bad] == [b"2", b"3,x,y", b'5,"x"y']
    assert [row.error for row in csv.bad][:2] == [Naming(1, 2), Naming(3, 2)]
    append(file, "6,z\n")
    assert csv.values() == ['{"id":"6","name":"z"}']


def test_a_header_alone_is_read_once(tmp_path: Path) -> None:
    csv, file = reading(tmp_path, "csv"), tmp_path / "a.csv"
    append(file, "id,name\n")
    assert (csv.values(), csv.offset("a.csv")["position"], csv.plan()) == ([], 8, ())
    append(file, "1,a\n")
    assert csv.values() == ['{"id":"1","name":"a"}']


def test_newlines_in_quotes_end_no_record_wherever_a_block_ends() -> None:
    records = [b"id,text\n", b'1,"a\nb"\n', b'2,"""\n"",\n"\n', b"3,x\r\n", b'"\n\n",""\n']
    text = b"".join(records)
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    for block in range(1, len(text) + 1):
        found = whole_records(io.BytesIO(text + b'4,"open\n'), "a", 0, len(text) + 8, csv=True, block=block)
        assert list(found) == list(zip(starts, records, strict=True))


def test_a_quote_that_is_open_waits_with_all_its_lines(tmp_path: Path) -> None:
    csv, file = reading(tmp_path, "csv"), tmp_path / "a.csv"
    append(file, 'id,text\n1,"a\nb\n')
    assert csv.values() == []
    assert csv.plan() == ()
    append(file, 'c"\n')
    assert csv.values() == ['{"id":"1","text":"a\\nb\\nc"}']


def test_a_quote_that_nobody_closes_is_told_with_file_and_line(tmp_path: Path) -> None:
    csv, file = reading(tmp_path, "csv"), tmp_path / "a.csv"
    append(file, 'id,note\n1,"o\nk"\n')
    assert csv.values() == ['{"id":"1","note":"o\\nk"}']
    append(file, '2,"5 inch\n3,a\n4,b\n')
    # Somebody may be about to close it.
    assert (csv.values(), csv.blockers()) == ([], [])
    os.utime(file, (1.0, 1.0))
    append(tmp_path / "b.csv", "id\n7\n")
    assert csv.values() == ['{"id":"7"}']
    [blocker] = csv.blockers()
    assert (blocker.where, blocker.since_ms) == ("a.csv", 1000)
    names(blocker.why, 4, 18)
    # Where nobody has counted lines, as of an offset that was set by hand, they are counted.
    csv.stored[partition_of("a.csv")] = FlatMap({"position": csv.offset("a.csv")["position"]})
    names(csv.blockers()[0].why, 4)
    append(file, 'closed"\n')
    assert (len(csv.read()), csv.blockers()) == (1, [])


def test_keys_have_the_digits_of_the_file(tmp_path: Path) -> None:
    numbers = [
        "12345678901234567890.12",
        "12345678901234567890.34",
        "1e999",
        "1e2",
        "-0",
        "1" * 5000,
        '{"b":[1.0,null]}',
    ]
    append(tmp_path / "a.jsonl", "".join(f'{{"id": {each}}}\n' for each in numbers))
    lines = reading(tmp_path, key=["id"])
    assert [(record.key or b"").decode() for record in lines.read()] == [f'{{"id":{each}}}' for each in numbers]
    assert lines.bad == []


def test_a_record_that_may_be_too_large_says_where_it_is(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", "{}\n" + '{"x":"' + "x" * LOOK + '"}\n')
    small, large = reading(tmp_path).read()
    assert small.where is None
    assert dict(large.where or {}) == {"file": "a.jsonl", "position": 3, "line": 2}


def test_a_quote_that_a_settled_file_leaves_open_is_a_bad_row(tmp_path: Path) -> None:
    csv = reading(tmp_path, "csv", settle="1h")
    append(tmp_path / "a.csv", 'id\n1\n"open\n2', settled=True)
    assert csv.values() == ['{"id":"1"}']
    assert [(row.raw, row.error) for row in csv.bad] == [(b'"open\n2', Naming())]
    assert csv.plan() == ()


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (b"a,a\n", "['a', 'a']"),
        (b"a,\n", "['a', '']"),
        (b"\xff\n", "can't decode"),
        (b"a,b\n", "id"),
    ],
)
def test_a_file_whose_header_names_no_fields_is_named_and_others_are_read(
    header: bytes, named: str, tmp_path: Path
) -> None:
    append(tmp_path / "a.csv", header, settled=True)
    append(tmp_path / "b.csv", "id\n7\n")
    csv = reading(tmp_path, "csv", key=["id"])
    assert csv.values() == ['{"id":"7"}']
    [blocker] = csv.blockers()
    says(blocker.why, Code.FILE_OTHER_FORMAT, "a.csv", named)


@pytest.mark.parametrize("text", [b"x" * (MOST_RECORD + 1), b'"' + b"\n" * (MOST_RECORD + 1)])
def test_a_record_without_end_stops_before_memory_does(text: bytes, tmp_path: Path) -> None:
    append(tmp_path / "a.csv", b"id\n" + text)
    append(tmp_path / "b.csv", "id\n7\n")
    csv = reading(tmp_path, "csv")
    assert csv.values() == ['{"id":"7"}']
    assert csv.values() == []
    [blocker] = csv.blockers()
    says(blocker.why, Code.FILE_RECORD_TOO_LONG, "a.csv", "16,777,216", 3)


def test_limits_end_a_plan_and_never_within_a_first_record(tmp_path: Path) -> None:
    lines = reading(tmp_path)
    for name in "abc":
        append(tmp_path / f"{name}.jsonl", "".join(f'{{"n":"{name}{i}"}}\n' for i in range(4)))
    # 11 bytes a line; what is left of a limit is enough for one more.
    found = [lines.values(Limits(100, 30)) for _ in range(8)]
    assert [len(each) for each in found] == [2, 3, 2, 2, 2, 1, 0, 0]
    assert sorted(chain(*found)) == sorted(f'{{"n":"{name}{i}"}}' for name in "abc" for i in range(4))
    assert len(reading(tmp_path).plan(Limits(100, 70))) == 2
    assert len(reading(tmp_path).read(Limits(100, 1))) == 1

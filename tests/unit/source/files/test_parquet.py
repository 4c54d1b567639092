"""Rows of Parquet."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calve.sink_core.codes import Code
from calve.sink_core.source.base import Limits
from tests.codes import finding, names, raises, says
from tests.unit.source.files.reading import append, reading

_US = pa.timestamp("us")


def numbers(file: Path, count: int, *, group: int = 700) -> None:
    pq.write_table(pa.table({"n": pa.array(range(count))}), file, row_group_size=group)


def test_rows_are_json_whatever_their_columns_are(tmp_path: Path) -> None:
    at = dt.datetime(2024, 2, 29, 12, 30, 0, 250_000)  # noqa: DTZ001 - that of no zone
    columns: dict[str, Any] = {
        "id": pa.array([1, None]),
        "price": pa.array([Decimal("0.0000000000"), Decimal("12345678.9000000000")]),
        "raw": pa.array([b"\x00\xff", None]),
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "at": pa.array([at, None], pa.timestamp("us")),
        "zoned": pa.array([at, None], pa.timestamp("ms", "UTC")),
        "exact": pa.array([1_709_209_800_000_000_001, None], pa.timestamp("ns")),
        "nested": pa.array([{"a": [1.5, float("nan")], "b": "ü"}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    rows = reading(tmp_path, "parquet", key=["id", "day"])
    first, second = rows.read()
    assert (first.key, second.key) == (b'{"id":1,"day":"2024-02-29"}', b'{"id":null,"day":null}')
    assert json.loads(first.value or b"") == {
        "id": 1,
        "price": "0.0000000000",
        "raw": "AP8=",
        "day": "2024-02-29",
        "at": "2024-02-29T12:30:00.250000",
        "zoned": "2024-02-29T12:30:00.250000Z",
        "exact": "2024-02-29T12:30:00.000000001",
        "nested": {"a": [1.5, "NaN"], "b": "ü"},
        "map": [["k", 1]],
    }
    assert set(json.loads(second.value or b"").values()) == {None, "12345678.9000000000"}
    assert rows.plan() == ()


def test_each_row_is_there_once_over_groups_batches_and_limits(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", 2500)
    rows = reading(tmp_path, "parquet")
    found = [[json.loads(value)["n"] for value in rows.values(Limits(900, 10**9))] for _ in range(4)]
    assert found == [list(range(900)), list(range(900, 1800)), list(range(1800, 2500)), []]
    whole = reading(tmp_path, "parquet")
    assert [json.loads(value)["n"] for value in whole.values()] == list(range(2500))
    assert max(len(each.records) for each in whole.rows) <= 1000
    offset = whole.offset("a.parquet")
    assert (offset["position"], offset["rows"], offset["size"]) == (2500, 2500, (tmp_path / "a.parquet").stat().st_size)
    # Each of them is a place to go on from.
    for each in whole.rows:
        again = reading(tmp_path, "parquet")
        again.stored = dict.fromkeys(whole.stored, each.offset)
        assert len(again.read()) == 2500 - int(str(each.offset["position"]))


def test_a_file_without_rows_is_looked_at_once(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", 0)
    rows = reading(tmp_path, "parquet")
    assert len(rows.plan()) == 1
    assert (rows.values(), rows.plan()) == ([], ())


def test_text_that_is_no_unicode_is_a_bad_row_and_the_rows_around_it_are_none(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff", b"c"]).cast(pa.string(), safe=False)
    if texts.type != pa.string():
        pytest.fail("no text")
    pq.write_table(pa.table({"t": texts}), tmp_path / "a.parquet")
    rows = reading(tmp_path, "parquet")
    assert rows.values() == ['{"t":"a"}', '{"t":"c"}']
    [bad] = rows.bad
    assert (bad.raw, dict(bad.where)) == (b"row 1 of a.parquet", {"file": "a.parquet", "position": 1, "column": "t"})
    assert "can't decode" in bad.error
    names(bad.error, "t")


@pytest.mark.parametrize("position", [900, 2500])
def test_a_file_that_was_written_anew_stops(position: int, tmp_path: Path) -> None:
    file, rows = tmp_path / "a.parquet", reading(tmp_path, "parquet")
    numbers(file, 2500)
    rows.read(Limits(position, 10**9))
    numbers(file, 2600)
    with raises(finding("file-changed"), "a.parquet"):
        rows.read()
    pq.write_table(pa.table({"n": pa.array(range(1, 2501))}), file, row_group_size=700)
    size = int(rows.offset("a.parquet")["size"])
    if file.stat().st_size < size:
        append(file, b"\0" * (size - file.stat().st_size))
    os.truncate(file, size)
    with raises(finding("file-changed"), "a.parquet"), rows.opened() as source:
        source.prepare(rows.stored)


def test_row_groups_that_were_read_are_not_read_again(tmp_path: Path) -> None:
    file, rows = tmp_path / "a.parquet", reading(tmp_path, "parquet")
    numbers(file, 30_000, group=10_000)
    rows.read(Limits(20_000, 10**9))
    second = pq.read_metadata(file).row_group(1).column(0)
    with file.open("r+b") as opened:
        opened.seek(second.dictionary_page_offset)
        opened.write(b"\xff" * second.total_compressed_size)
    assert len(rows.read()) == 10_000


def test_a_task_finds_a_file_that_was_written_anew_since_the_plan(tmp_path: Path) -> None:
    file, rows = tmp_path / "a.parquet", reading(tmp_path, "parquet")
    numbers(file, 2500)
    [first] = rows.plan()
    rows.read(Limits(900, 10**9))
    [second] = rows.plan()
    numbers(file, 2600)
    for work in (first, second):
        with rows.opened() as task, raises(finding("file-changed"), "a.parquet"):
            next(task.read(work))


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda file: append(file, "PAR1 and no more"), []),
        (lambda file: numbers(file, 3), ["id"]),
        (lambda file: pq.write_table(pa.table([[1], [2]], names=["id", "id"]), file), ["['id', 'id']"]),
    ],
    ids=["not whole", "without the key", "one name twice"],
)
def test_what_can_not_be_read_is_named_and_others_are_read(made: Any, named: list[str], tmp_path: Path) -> None:
    made(tmp_path / "a.parquet")
    os.utime(tmp_path / "a.parquet", (1.0, 1.0))
    pq.write_table(pa.table({"id": [7]}), tmp_path / "b.parquet")
    rows = reading(tmp_path, "parquet", key=["id"])
    assert rows.values() == ['{"id":7}']
    [blocker] = rows.blockers()
    assert (blocker.where, blocker.since_ms) == ("a.parquet", 1000)
    says(blocker.why, Code.FILE_OTHER_FORMAT, "a.parquet", *named)


@pytest.mark.parametrize("nested", [False, True])
def test_times_of_the_old_form_are_those_that_were_written_in_any_year(nested: bool, tmp_path: Path) -> None:
    times = ["1600-01-01T00:00:00", "9999-12-31T23:59:59.999999", "2024-02-29T12:00:00", None]
    moments = [None if each is None else dt.datetime.fromisoformat(each) for each in times]
    column = pa.array([[each] for each in moments] if nested else moments, pa.list_(_US) if nested else _US)
    beside = pa.array([1_709_209_800_000] * 4, pa.timestamp("ms"))
    table = pa.table({"at": column, "beside": beside})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found = [json.loads(value)["at"] for value in reading(tmp_path, "parquet").values()]
    assert found == ([[each] for each in times] if nested else times)


def test_nanoseconds_of_the_old_form_are_kept_or_a_bad_row(tmp_path: Path) -> None:
    column = pa.array([1_709_209_800_000_000_001, -1], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": column}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found = [json.loads(value)["at"] for value in reading(tmp_path, "parquet").values()]
    assert found == ["2024-02-29T12:30:00.000000001", "1969-12-31T23:59:59.999999999"]


def test_a_file_that_is_damaged_within_is_named_and_others_are_read(tmp_path: Path) -> None:
    numbers(tmp_path / "a.parquet", 30_000)
    column = pq.read_metadata(tmp_path / "a.parquet").row_group(1).column(0)
    with (tmp_path / "a.parquet").open("r+b") as opened:
        opened.seek(column.dictionary_page_offset)
        opened.write(b"\xff" * column.total_compressed_size)
    numbers(tmp_path / "b.parquet", 3)
    rows = reading(tmp_path, "parquet")
    assert len(rows.read()) >= 3
    [blocker] = rows.stuck
    says(blocker.why, Code.FILE_OTHER_FORMAT, "a.parquet")
    assert rows.offset("b.parquet")["position"] == 3

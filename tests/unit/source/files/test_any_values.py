"""Any values of JSON lines and of Parquet: keys with the digits of the file, and rows with all that was written."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.any_values.series import MANY, compare_many
from tests.unit.source.files.reading import append, reading

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_SPACE = st.sampled_from(["", " ", "\t", "  "])
_WHOLE = st.integers().map(str) | st.integers(0, 10**60).map(str) | st.just("-0")
_NUMBER = st.builds(
    "{}{}{}".format,
    _WHOLE,
    st.sampled_from(["", ".0", ".10", ".34"]) | st.integers(0, 10**30).map(".{}".format),
    st.sampled_from(["", "e2", "E+10", "e-7", "e999"]),
)

Written = tuple[str, str]
"""JSON as a file has it, and without spaces."""


def _both(text: str) -> Written:
    return text, text


def _listed(items: Sequence[Written], space: str) -> Written:
    loose = f"[{space}" + f"{space},".join(each for each, _ in items) + f"{space}]"
    return loose, "[" + ",".join(each for _, each in items) + "]"


def _object(fields: dict[str, Written], space: str) -> Written:
    named = {name: (_escaped(name), _plain(name)) for name in fields}
    loose = ",".join(f"{space}{named[name][0]}{space}:{space}{each}" for name, (each, _) in fields.items())
    close = ",".join(f"{named[name][1]}:{each}" for name, (_, each) in fields.items())
    return f"{{{loose}{space}}}", f"{{{close}}}"


def _escaped(text: str) -> str:
    return json.dumps(text)


def _plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_SCALARS = st.sampled_from(["null", "true", "false"]).map(_both) | _NUMBER.map(_both)
JSON = st.recursive(
    _SCALARS | _TEXT.map(lambda text: (_escaped(text), _plain(text))),
    lambda inner: (
        st.builds(_listed, st.lists(inner, max_size=3), _SPACE)
        | st.builds(_object, st.dictionaries(_TEXT, inner, max_size=3), _SPACE)
    ),
    max_leaves=6,
)


def _line(k: Written, l: Written, space: str) -> Written:  # noqa: E741 - fields of one letter
    """A line, and its key by k and l."""
    return _object({"l": l, "k": k}, space)[0], _object({"k": k, "l": l}, space)[1]


LINES = st.lists(st.builds(_line, JSON, JSON, _SPACE), min_size=1, max_size=30)


def compare_lines(lines: Sequence[Written]) -> int:
    """Values are the bytes of the file, keys what it says without its spaces. Returns how many values there were."""
    with tempfile.TemporaryDirectory() as folder:
        append(Path(folder) / "a.jsonl", "".join(f"{loose}\n" for loose, _ in lines))
        rows = reading(folder, key=["k", "l"])
        found = [((record.value or b"").decode(), (record.key or b"").decode()) for record in rows.read()]
    assert rows.bad == []
    assert found == [(loose.strip(), close) for loose, close in lines]
    return 2 * len(lines)


@given(LINES)
def test_keys_of_lines_are_what_the_file_says(lines: list[Written]) -> None:
    compare_lines(lines)


_MOMENTS = st.datetimes()
_OLD = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001 - those of no zone
_ZONED = pa.timestamp("us", "UTC")
_KINDS: dict[pa.DataType, SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): _TEXT,
    pa.binary(): st.binary(max_size=9),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(38, 10): st.decimals(-(10**20), 10**20, places=10),
    pa.decimal256(60, 0): st.integers(-(10**50), 10**50).map(Decimal),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): _MOMENTS,
    _ZONED: st.datetimes(timezones=st.just(dt.UTC)),
}
_NESTED = (
    lambda kind: (pa.list_(kind), lambda values: st.lists(st.none() | values, max_size=3)),
    lambda kind: (pa.struct([("a", kind)]), lambda values: st.fixed_dictionaries({"a": st.none() | values})),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, bool]:
    """A table, and whether its times are written in the old form."""
    rows, columns = draw(st.integers(1, 20)), dict[str, pa.Array]()
    old = draw(st.booleans())
    for number in range(draw(st.integers(1, 6))):
        # The old form has no zones.
        kind = draw(st.sampled_from(sorted(_KINDS, key=str)).filter(lambda each: not old or each != _ZONED))
        values = _OLD if old and kind == pa.timestamp("us") else _KINDS[kind]
        if draw(st.booleans()):
            nest = draw(st.sampled_from(_NESTED))(kind)
            kind, values = nest[0], nest[1](values)
        columns[f"c{number}"] = pa.array(draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), kind)
    return pa.table(columns), old


def compare_table(table: pa.Table, old: bool) -> int:
    """Each row has what was written. Returns how many values there were."""
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/a.parquet", use_deprecated_int96_timestamps=old)
        rows = reading(folder, "parquet")
        found = [json.loads(value) for value in rows.values()]
    assert rows.bad == []
    assert found == [{name: _expected(value) for name, value in row.items()} for row in table.to_pylist()]
    return table.num_columns * table.num_rows


def _expected(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, list):
        return [_expected(each) for each in value]
    if isinstance(value, dict):
        return {name: _expected(each) for name, each in value.items()}
    return value


@settings(max_examples=60)
@given(tables())
def test_rows_of_parquet_have_all_that_was_written(table: tuple[pa.Table, bool]) -> None:
    compare_table(*table)


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_many_values_of_lines_and_of_parquet_are_what_was_written() -> None:
    assert compare_many(compare_lines, LINES) >= MANY
    assert compare_many(lambda written: compare_table(*written), tables()) >= MANY

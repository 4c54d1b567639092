"""A table's SQL over decoded records: its rows, what it leaves out, what fails, and what is refused before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.schema import Schema

from calve.sink_core.codes import Code
from calve.sink_core.config.tables import Transform
from calve.sink_core.errors import ConfigError
from calve.sink_core.records.columns.kafka_column import RAW_KEY, kafka_type
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.transform.transform import Transforming, input_schema
from tests.codes import Naming, raises
from tests.documents import table_rows, text

TYPES = {
    "id": "long",
    "extra": "map<string, string>",
    "who_age": "int",
    "seen": "long",
    "n": "long",
    "at": "long",
    "email": "string",
}


def origins(places: Sequence[int]) -> pa.Array:
    headers = [{"key": "trace", "value": b"abc"}]
    common: dict[str, Any] = {"topic": "t", "partition": 0, "timestamp": 0, "key": b"key", "headers": headers}
    return pa.array([{**common, "offset": 7 + place} for place in places], kafka_type(RAW_KEY))


def run(transform: Transform, table: Schema, *values: str) -> Decoded:
    decoded = JsonDecoder(input_schema(transform, table)).decode([value.encode() for value in values])
    return Transforming(transform, table, table="ns.t").apply(decoded, origins)


def made(select: str, where: str | None = None, **columns: str) -> Transform:
    return Transform(columns=columns, select=select, where=where)


def examples() -> Iterator[Any]:
    for row in table_rows(text("docs/transforms.md"))[2:]:
        what, value, columns, select, result = (cell.strip().strip("`").replace("\\|", "|") for cell in row)
        yield pytest.param(value, columns, select, result, id=what)


@pytest.mark.parametrize(("value", "columns", "select", "result"), list(examples()))
def test_the_examples_of_the_documents(value: str, columns: str, select: str, result: str) -> None:
    wanted = json.loads(result)
    types = {name: TYPES.get(name, "string") for name in wanted} | ({"at": "timestamptz"} if "ms" in value else {})
    found = run(Transform(columns=yaml.safe_load(f"{{{columns}}}"), select=select), schema_of(types), value)
    assert found.bad == ()
    [row] = found.columns.to_pylist(maps_as_pydicts="strict")
    assert {name: str(item) if name == "at" and "ms" in value else item for name, item in row.items()} == wanted


TABLE = schema_of({"id": "long", "n": "int"})


def test_where_leaves_records_out_and_the_others_stay_in_order() -> None:
    values = [json.dumps({"id": i, "n": i % 3}) for i in range(1_000)]
    found = run(made("*", "n <> 1 AND _kafka.offset > 9"), TABLE, *values)
    expected = [i for i in range(1_000) if i % 3 != 1 and i > 2]
    assert found.good == expected
    assert found.columns.column("id").to_pylist() == expected
    assert found.columns.schema.names == ["id", "n"]


def test_a_record_that_fails_does_so_alone_and_says_why() -> None:
    values = [json.dumps({"id": i, "n": "x" if i in (3, 700) else str(i)}) for i in range(1_000)]
    found = run(made("id, n::INT AS n", id="long", n="string"), TABLE, *values, "{", '{"id": 5, "n": "99999999999"}')
    assert [(bad.index, bad.stage) for bad in found.bad] == [
        (3, "transform"),
        (700, "transform"),
        (1000, "decode"),
        (1001, "transform"),
    ]
    assert "'x'" in found.bad[0].message
    assert "INT32" in found.bad[0].message
    assert found.columns.column("n").to_pylist() == [i for i in range(1_000) if i not in (3, 700)]
    assert found.good == found.columns.column("id").to_pylist()


def test_a_failing_condition_is_a_failing_record_too() -> None:
    found = run(made("id", "n::INT > 1", id="long", n="string"), TABLE, '{"id": 1, "n": "2"}', '{"id": 2, "n": "x"}')
    assert (found.good, [bad.index for bad in found.bad]) == ([0], [1])


def test_what_the_table_requires_must_be_there() -> None:
    required = Schema(TABLE.fields[0].model_copy(update={"required": True}), TABLE.fields[1])
    found = run(made("*"), required, '{"id": 1}', '{"n": 2}')
    assert (found.good, [(bad.index, bad.message) for bad in found.bad]) == ([0], [(1, Naming(of="id"))])
    with raises(Code.UNUSABLE_SQL, "ns.t", "transform", "id", "select", of=ConfigError):
        Transforming(made("n"), required, table="ns.t")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (("count(*) AS id",), "aggregate|GROUP BY"),
        (("max(id) AS id",), "aggregate|GROUP BY"),
        (("sum(id) OVER () AS id",), "window"),
        (("unnest([1, 2]) AS id",), r"unnest\(\)"),
        (("(SELECT max(id) FROM record) AS id",), "subquery"),
        (("id", "id IN (SELECT 1)"), "subquery"),
        (("id FROM record; SELECT id",), ""),
        (("id FROM range(5) --",), "syntax error"),
        (("DISTINCT id",), ""),
        (("id", "true) ORDER BY (id"), ""),
        (("id", "true) LIMIT (1"), ""),
        (("id +",), "syntax error"),
        (("id, other",), 'Referenced column "other" not found'),
        (("id AS other",), " other: "),
        (("id::DOUBLE AS id",), " id: .*double.*int64"),
        (("id AS n",), " n: .*int64.*int32"),
        (("id", "id"), None),
        (("read_text('/etc/passwd') AS id",), "Binder Error"),
        (("getenv('HOME') AS n",), "getenv|Binder"),
    ],
)
def test_sql_that_cannot_be_is_refused_with_the_reason(sql: tuple[str, ...], said: str | None) -> None:
    transform = Transform(select=sql[0], where=sql[1] if len(sql) > 1 else None)
    if said is None:
        Transforming(transform, TABLE, table="ns.t")
        return
    with raises(Code.UNUSABLE_SQL, "ns.t", of=ConfigError) as refused:
        Transforming(transform, TABLE, table="ns.t")
    # What SQL's own reason is about.
    assert re.search(said, str(refused.value))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"id": "long", "Pos": "long", "pos": "long"}, "Pos from pos"),
        ({"id": "long", "s": "struct<a: list<struct<b: int, B: int>>>"}, "s.a.element.b from s.a.element.B"),
    ],
)
def test_names_that_are_one_in_sql_are_refused(columns: dict[str, str], named: str) -> None:
    with raises(Code.UNUSABLE_SQL, named, of=ConfigError):
        Transforming(Transform(columns=columns, select="id"), TABLE, table="ns.t")


def test_a_field_that_could_be_no_column_is_one_under_another_name() -> None:
    table = schema_of({"id": "long", "pos": "long"})
    named = made("id, _pos AS pos", id="long", _pos="long")
    assert run(named, table, '{"id": 1, "_pos": 5}').columns.to_pylist() == [{"id": 1, "pos": 5}]


def test_a_field_may_have_any_name_that_sql_takes() -> None:
    table = schema_of({"_row": "long", "id": "long"})
    values = [f'{{"_row":{row},"id":{number}}}' for row, number in ((7, 1), (0, 11), (5, 12))]
    found = run(made("*", "id > 10"), table, *values)
    assert (found.good, found.columns.column("_row").to_pylist()) == ([1, 2], [0, 5])


@pytest.mark.parametrize(
    ("kind", "sql", "good", "bad"),
    [
        ("decimal(38,0)", "s::HUGEINT::DECIMAL(38,0)", "7", "170141183460469231731687303715884105727"),
        ("decimal(38,0)", "s::HUGEINT", "7", "170141183460469231731687303715884105727"),
        ("time", "s::TIME", "23:59:59", "24:00:00"),
    ],
)
def test_what_only_duckdb_holds_is_a_failing_record(kind: str, sql: str, good: str, bad: str) -> None:
    transform = made(f"{sql} AS v", s="string")
    found = run(transform, schema_of({"v": kind}), *(json.dumps({"s": text}) for text in (good, bad, good)))
    assert (found.good, [verdict.index for verdict in found.bad]) == ([0, 2], [1])
    found.columns.validate(full=True)


def test_a_time_with_a_zone_is_refused() -> None:
    with raises(Code.UNUSABLE_SQL, "v", "time", of=ConfigError):
        Transforming(made("s::TIMETZ AS v", s="string"), schema_of({"v": "time"}), table="ns.t")


def test_a_record_that_takes_too_much_memory_fails_alone() -> None:
    table = schema_of({"u": "string"})
    values = [json.dumps({"s": "a" * 10, "n": n}) for n in (1, 30_000_000, 2)]
    found = run(made("repeat(s, n) AS u", s="string", n="long"), table, *values)
    assert (found.good, [bad.index for bad in found.bad]) == ([0, 2], [1])


def test_sql_reaches_no_files_and_no_settings() -> None:
    connection = Transforming(made("*"), TABLE, table="ns.t")._connection
    for statement in (
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x.db'",
        "SET threads = 4",
    ):
        with pytest.raises(Exception, match=r"disabled by configuration|has been locked"):
            connection.execute(statement)


def test_types_arrive_as_the_table_has_them() -> None:
    types = {
        "u": "uuid",
        "f": "fixed[2]",
        "d": "decimal(10,2)",
        "s": "struct<a: int, b: string>",
        "l": "list<long>",
        "t": "time",
    }
    table = schema_of(types)
    select = (
        "'00000000-0000-0000-0000-00000000002a'::UUID AS u, '\\x01\\x02'::BLOB AS f, 1.5::DECIMAL(4,1) AS d, "
        "{'a': 1::TINYINT, 'b': 'x'} AS s, [1, NULL]::INT[] AS l, TIME '10:00:00' AS t"
    )
    [row] = run(made(select, id="long"), table, '{"id": 1}').columns.to_pylist()
    assert (row["u"], row["f"], str(row["d"])) == (b"\0" * 15 + b"*", b"\1\2", "1.50")
    assert (row["s"], row["l"], str(row["t"])) == ({"a": 1, "b": "x"}, [1, None], "10:00:00")
    with raises(Code.UNUSABLE_SQL, "b", of=ConfigError):
        Transforming(made("{'b': 'x', 'a': 1} AS s", id="long"), table, table="ns.t")

"""JSON at the ends of what types and parsers hold: a value or a dead letter, and neighbours none the worse for it."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from importlib import import_module
from itertools import count

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from calve.sink_core import compiled
from calve.sink_core.packed import packed
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.decode import convert
from calve.sink_core.records.decode.decoded import FIT, Decoded
from calve.sink_core.records.json.columns import infer_schema
from calve.sink_core.records.json.decoder import JsonDecoder
from tests.codes import Naming
from tests.unit.records.decode.outcomes import outcomes

POOL = pa.proxy_memory_pool(pa.default_memory_pool())
"""For one test, whose peak is not to be that of every test before; it must outlive what is allocated."""
DOUBLES = [
    # Whose digits, cut to 64 bits, are zero.
    "9223372036854775808.0",
    "-9223372036854775808.000000",
    "18.446744073709551616",
    "36.893488147419103232",
    # Whose exponents and fractions are as long as each other.
    f"0.{'0' * 10_000}1e10001",
    f"1{'0' * 300}.0e-300",
    f"0.{'0' * 30}1e31",
]


@pytest.fixture(autouse=True, params=["parser", "kernel"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is of both."""
    import_module(compiled.JSON)
    monkeypatch.setattr(compiled, "usable", lambda *_: request.param == "kernel")


def decoded(columns: dict[str, str], *values: bytes, **options: object) -> Decoded:
    return JsonDecoder(schema_of(columns), **options).decode(packed(list(values)))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("text", DOUBLES)
def test_a_double_is_the_nearest_whatever_its_digits(text: str) -> None:
    # Eleven, since a batch of suspects only is left to the parser.
    values = [b'{"a":1.5}'] * 10 + [f'{{"a":{text}}}'.encode()]
    assert outcomes(decoded({"a": "double"}, *values), 11) == [{"a": 1.5}] * 10 + [{"a": float(text)}]


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("decimal(38,10)", "40000000000000000000000000000"),
        ("decimal(38,10)", "-40000000000000000000000000000"),
        ("decimal(38,10)", "4e28"),
        ("decimal(38,10)", '"4e28"'),
        ("decimal(38,2)", "3500000000000000000000000000000000000"),
        ("decimal(38,37)", "35"),
        ("decimal(38,38)", "4"),
        ("decimal(20,19)", "99999999999999999999"),
    ],
)
@pytest.mark.parametrize(
    ("within", "path"), [("{}", "a"), ("list<{}>", "a.element"), ("map<string,{}>", "a.value")], ids=lambda part: part
)
def test_a_decimal_that_has_too_many_digits_at_its_scale_does_not_fit(
    kind: str, number: str, within: str, path: str
) -> None:
    shape = {"{}": "{}", "list<{}>": "[{}]"}.get(within, '{{"k":{}}}')
    values = [f'{{"a":{shape.format(each)}}}'.encode() for each in (number, "0.5")]
    bad, good = outcomes(decoded({"a": within.format(kind)}, *values), 2)
    assert bad[0] == FIT
    assert bad[1].startswith(f"{path}: ")
    assert "precision" in bad[1]
    assert good["a"] in (Decimal("0.5"), [Decimal("0.5")], [("k", Decimal("0.5"))])


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("decimal(20,4)", "1e-43"),
        ("decimal(20,4)", '"1e-43"'),
        ("decimal(20,4)", '"1\\u0065-43"'),
        ("decimal(20,4)", '"1e-4\\u0033"'),
        ("decimal(20,4)", "-0.5E-042"),
        ("decimal(9,0)", "1e-39"),
        ("decimal(9,0)", f"0.{'0' * 29}1e-9"),
        ("decimal(9,0)", f'"{"0" * 200}1e-39"'),
        ("decimal(9,0)", f"1e-{'9' * 10_000}"),
    ],
)
@pytest.mark.parametrize("within", ["{}", "list<{}>", "struct<m: {}>", "map<string,{}>"], ids=lambda part: part)
def test_a_decimal_with_digits_far_behind_the_point_is_not_zero(kind: str, number: str, within: str) -> None:
    shape = {"{}": "{}", "list<{}>": "[{}]", "struct<m: {}>": '{{"m":{}}}'}.get(within, '{{"k":{}}}')
    values = [f'{{"a":{shape.format(each)}}}'.encode() for each in (number, "5")]
    bad, good = outcomes(decoded({"a": within.format(kind)}, *values), 2)
    assert bad[0] == FIT
    assert bad[1].startswith("a")
    assert good["a"] in (Decimal(5), [Decimal(5)], {"m": Decimal(5)}, [("k", Decimal(5))])


def test_what_is_far_behind_the_point_of_others_spoils_no_decimal() -> None:
    columns = {"d": "decimal(9,0)", "x": "double", "t": "string", "id": "string"}
    texts = ["1e-300", "1e-39", "\\u0031e-99", "f79c3e09-677c-4bbd-a47e-399999999999", "3fe-99", "1.5e-40 ", ""]
    values = [f'{{"d":10e-1,"x":1.5e-300,"o":1e-99,"t":"{text}","id":"{text}"}}'.encode() for text in texts]
    found = outcomes(decoded(columns, *values), len(values))
    assert [row["t"] for row in found] == [text.replace("\\u0031", "1") for text in texts]
    assert [(row["d"], row["x"]) for row in found] == [(Decimal(1), 1.5e-300)] * len(values)


def test_a_decimal_may_have_all_digits_of_its_type() -> None:
    digits = ["12345678901234567890123456.0123456789", "-9999999999999999999999999999.9999999999", "0"]
    values = [f'{{"a":{number}}}'.encode() for number in digits]
    assert outcomes(decoded({"a": "decimal(38,10)"}, *values), 3) == [{"a": Decimal(number)} for number in digits]


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("double", "1", "1.0"),
        ("decimal(5,2)", "1", "1.0"),
        ("int", "0", "-0"),
        ("timestamptz", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00"),
        ("timestamp", "2024-01-01", "2024-01-01T00:00:00"),
        ("time", "10:00", "10:00:00"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", "F79C3E09-677C-4BBD-A479-3F349CB785E7"),
        ("binary", "QQ==", "QR=="),
    ],
)
@pytest.mark.parametrize("within", ["{}", "list<{}>", "struct<m: {}>", "map<string,{}>"])
def test_one_key_written_in_two_ways_stands_twice(key: str, one: str, other: str, within: str) -> None:
    form = {"{}": "{}", "list<{}>": "[{}]", "struct<m: {}>": '{{"m":{}}}', "map<string,{}>": '{{"k":{}}}'}[within]
    maps = [f'{{"{one}":1,"{other}":2}}', f'{{"{one}":1}}', f'{{"{other}":1}}', "null", "{}"]
    values = [f'{{"a":{form.format(each)}}}'.encode() for each in maps]
    found = outcomes(decoded({"a": within.format(f"map<{key},int>")}, *values), 5)
    assert found[0] == (FIT, Naming(of="a"))
    assert [type(row) for row in found[1:]] == [dict] * 4


@pytest.mark.parametrize("name", ["a\\b", "a\\u0041", 'a"b', "\\", "a\nb"])
def test_a_column_is_not_met_by_a_name_that_is_only_written_like_it(name: str) -> None:
    [found] = outcomes(decoded({name: "int"}, f'{{"{name}":1}}'.encode()), 1)
    assert found == {name: None} or found[0] == "decode"


@pytest.mark.parametrize("levels", [100, 331, 480, 900, 3_000, 100_000])
@pytest.mark.parametrize("steps", [(), ("add_column",)])
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_a_record_nested_deeply_ends_nothing(levels: int, steps: tuple[str, ...], brackets: tuple[str, str]) -> None:
    inner = f"{brackets[0] * levels}1{brackets[1] * levels}"
    deep = f'{{"id":1,"x":{inner}}}'.encode()
    found = decoded({"id": "long"}, deep, b'{"id":2,"y":1}', steps=steps)
    first, second = outcomes(found, 2)
    assert second == {"id": 2}
    assert first == {"id": 1} or first[0] == "decode"
    wanted = found.wanted.column_names if found.wanted else []
    assert wanted == (["id", "y"] if steps else [])


def test_a_sample_is_made_columns_of_without_what_is_nested_too_deeply() -> None:
    deep = b'{"x":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}"
    assert infer_schema([deep, b'{"id":1}']).column_names == ["id"]


def test_a_row_that_has_a_misfit_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, of = count(), convert.bisect

    def counting(number: int, attempt: object, *more: object) -> object:
        def counted(part: object) -> object:
            next(calls)
            return attempt(part)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]

        return of(number, counted, *more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(convert, "bisect", counting)
    columns = {f"t{i}": "timestamptz" for i in range(10)}
    text = ",".join(f'"{name}":"2024-01-01T00:00:00"' for name in columns)
    found = decoded(columns, *[f"{{{text}}}".encode()] * 64)
    assert [bad.message.partition(":")[0] for bad in found.bad] == ["t0"] * 64
    assert next(calls) < 3 * 64


@pytest.mark.parametrize("kind", ["timestamptz", "decimal(9,2)", "uuid", "long", "binary", "map<string,long>"])
def test_what_a_verdict_says_of_a_record_can_be_printed(kind: str) -> None:
    text = '"\\u001b]0;owned\\u0007\\u009b2J\\n\\u202e"'
    for value in (f'{{"a":{text}}}', f'{{{text}:1,{text}:2,"a":{{{text}:[]}}}}', f"{{\x1b{text}"):
        [found] = outcomes(decoded({"a": kind}, value.encode()), 1)
        assert found[1].isprintable()


def test_zero_is_whole_whatever_its_exponent() -> None:
    assert outcomes(decoded({"a": "long"}, b'{"a":0e25}', b'{"a":-0.0}'), 2) == [{"a": 0}, {"a": 0}]


def test_text_that_is_none_is_found_where_others_have_most_of_the_data() -> None:
    values = packed([b'{"a":"\xff"}', b'{"a":"\xc3\xa9"}', *[b'{"a":"x"}'] * 100])
    mine = values.at([1, 0])  # pyright: ignore[reportArgumentType]
    found = JsonDecoder(Schema(*schema_of({"a": "string"}).fields)).decode(mine)
    assert [row if isinstance(row, dict) else row[0] for row in outcomes(found, 2)] == [{"a": "é"}, "decode"]


@pytest.mark.parametrize("columns", [{"id": "long"}, {"id": "long", "m": "map<string,int>"}])
def test_half_of_a_character_is_no_text_wherever_it_stands(columns: dict[str, str]) -> None:
    halves = [b'{"id":1,"\\ud800":5}', b'{"id":1,"x":{"y":["\\uDfff"]}}']
    found = decoded(columns, *halves, b'{"id":2,"\\ud83d\\ude00":1}')
    assert [bad.index for bad in found.bad] == [0, 1]
    assert found.dropped == {"\N{GRINNING FACE}": 1}


def test_one_record_of_many_fields_makes_no_columns_of_all_others() -> None:
    many = ",".join(f'"f{n}":{n}' for n in range(20_000))
    # Not among those that a look at some of them sees.
    values = [b'{"id":1}'] * 1_003 + [f'{{"id":2,{many}}}'.encode()] + [b'{"id":1}'] * 997
    usual = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    tracemalloc.start()
    try:
        found = decoded({"id": "long", "tags": "list<int>"}, *values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert len(found.columns) == 2_001
    assert sum(found.dropped.values()) == 20_000
    assert peak + (POOL.max_memory() or 0) < 400 * 2**20


@pytest.mark.parametrize("names", [("1a", "_1a"), ("a-b", "a_x2Db")])
def test_names_that_are_one_in_files_are_not_both_columns(names: tuple[str, str]) -> None:
    value = f'{{"{names[0]}":1,"s":{{"{names[0]}":1,"{names[1]}":2}},"{names[1]}":"x"}}'.encode()
    assert infer_schema([value]).column_names == [names[0], f"s.{names[0]}", "s"]
    wanted = decoded({"id": "long"}, b'{"id":1}', value, steps=("add_column",)).wanted
    assert wanted is not None
    assert names[1] not in wanted.column_names

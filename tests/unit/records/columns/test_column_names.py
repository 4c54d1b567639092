"""Names that some reader can't read never become columns, whichever way they come."""

from __future__ import annotations

import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import FormatsByTopic
from calve.sink_core.config.sink_pipeline import TableSettings
from calve.sink_core.config.tables import AutoCreate, Steps
from calve.sink_core.iceberg.create.tables import new_table
from calve.sink_core.records.columns.column_names import RESERVED, Taken
from calve.sink_core.records.columns.evolution import evolved
from calve.sink_core.records.formats import Formats
from tests.codes import raises


def struct(*names: str) -> StructType:
    return StructType(*(NestedField(i, name, LongType(), required=False) for i, name in enumerate(names, 1)))


def refused(*fields: NestedField) -> list[str]:
    """The paths of those that are, each with a reason."""
    reasons = Taken().readable(fields)[1]
    assert all(reasons.values())
    return list(reasons)


def field(name: str, kind: object) -> NestedField:
    return NestedField(50, name, kind, required=False)  # pyright: ignore[reportArgumentType]


def test_plain_names_are_columns_as_they_are() -> None:
    fields = struct("id", "_id", "pos", "naïve", "a b", "`", "x.y", "_kafka").fields
    assert Taken().readable(fields) == (list(fields), {})


@pytest.mark.parametrize("name", sorted({*RESERVED, "_POS", "_File"}))
def test_names_of_metadata_columns_are_refused_at_the_top_only(name: str) -> None:
    assert refused(*struct("id", name).fields) == [name]
    assert refused(field("s", struct(name))) == []


def test_twins_are_told_by_their_path_whatever_their_case() -> None:
    assert refused(*struct("userId", "userid", "USERID").fields) == ["userid", "USERID"]
    assert refused(field("a.b", LongType()), field("a", struct("b", "c"))) == ["a.b"]
    kept, _ = Taken().readable([field("a.b", LongType()), field("a", struct("b"))])
    assert [each.name for each in kept] == ["a.b"], "nothing is left of the struct"
    of_list = ListType(9, LongType(), element_required=False)
    assert refused(field("l", of_list), field("l.element", LongType())) == ["l.element"]
    of_map = MapType(9, StringType(), 10, struct("x", "X"), value_required=False)
    assert refused(field("m", of_map), field("m.KEY", LongType())) == ["m.value.X", "m.KEY"]
    in_list = ListType(9, struct("x", "X"), element_required=False)
    assert refused(field("l", in_list)) == ["l.element.X"]


def test_what_is_no_name_is_refused() -> None:
    assert refused(*struct("", "\ud800", "id").fields) == ["", "\ud800"]


@pytest.mark.parametrize(
    "name",
    ["a\x1b[31m", "x\0", "a\nb", "a\x85", "a\u202eb", "\ufeffa", "a\ud800", "\ue000", "\uffff", "a" * 256, "é" * 128],
)
def test_a_name_that_cannot_be_seen_or_is_too_long_is_refused(name: str) -> None:
    assert refused(*struct("id", name).fields) == [name]
    assert refused(field("s", struct("id", name))) == [f"s.{name}"]
    assert refused(*struct("a" * 255, "é" * 127, "a b", "\N{GRINNING FACE}").fields) == []


def test_a_table_gets_none_of_them_later_either() -> None:
    have = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", struct("a"), required=False))
    wanted = Schema(
        NestedField(1, "ID", LongType()),
        NestedField(2, "s", StructType(*struct("a", "A", "b").fields)),
        NestedField(3, "_pos", LongType()),
        NestedField(5, "", LongType()),
        NestedField(6, "more", LongType()),
    )
    twice = Schema(NestedField(1, "s.a", LongType()), NestedField(2, "S.A", LongType()))
    assert evolved(have, twice, ["add_column"]) is None
    found = evolved(have, wanted, ["add_column"])
    assert found
    assert found.changes == ("add s.b long", "add more long")


def test_a_sample_gives_only_columns_that_can_be_read() -> None:
    formats = Formats(FormatsByTopic())

    def columns(record: dict[str, object]) -> list[str]:
        return [f.name for f in formats.columns(["t"], lambda: {"t": [json.dumps(record).encode()]}).fields]

    assert columns({"id": 1, "Id": 2, "_pos": 3, "": 4, "a.b": 5, "a": {"b": 7}}) == ["id", "a.b"]
    with raises(Code.NO_RECORD, "_pos"):
        columns({"_pos": 1})


def test_columns_that_the_file_names_are_refused_with_the_reason() -> None:
    settings = TableSettings("db.t", "append", None, False, 1, Steps(), case_insensitive=False, owned=None)
    wanted = AutoCreate.model_validate({"columns": {"id": "long", "ID": "long"}})
    with raises(Code.UNREADABLE_NAMES, "db.t", "ID"):
        new_table(settings, wanted, Schema)

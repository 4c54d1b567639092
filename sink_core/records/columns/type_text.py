"""Iceberg types as they are written in a pipeline file.

    type      = primitive | "list<" type ">" | "map<" type "," type ">" | "struct<" field { "," field } ">"
    field     = name ":" type
    primitive = Iceberg's own names (https://iceberg.apache.org/spec/#primitive-types) that format version 2 has:
                boolean int long float double decimal(P,S) date time timestamp timestamptz string uuid fixed[L] binary
    name      = letters, digits, _ and -, or anything else between backticks (a backtick in it doubled)

Everything is optional: a column, a struct's field, a list's element, a map's value (its key never is).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import ConfigError

FORMS = "long, decimal(10,2), timestamptz, list<string>, map<string, long>, struct<a: int, b: string>"

_SIMPLE: Mapping[str, IcebergType] = {
    str(kind): kind
    for kind in (
        BooleanType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        DateType(),
        TimeType(),
        TimestampType(),
        TimestamptzType(),
        StringType(),
        UUIDType(),
        BinaryType(),
    )
}
_OTHER_NAMES = {
    "bool": "boolean",
    "integer": "int",
    "smallint": "int",
    "tinyint": "int",
    "bigint": "long",
    "real": "float",
    "varchar": "string",
    "text": "string",
    "bytes": "binary",
    "datetime": "timestamp",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamptz",
    "array": "list",
}
"""What other systems call a type, for the hint alone."""

DECIMAL_DIGITS = 38
"""A decimal column has at most."""

_SPARK_NAMES = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s<>,:()\[\]`]+|[<>,:()\[\]])")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+")


def schema_of(columns: Mapping[str, str]) -> Schema:
    """The schema of `columns`, type text by name, in their order. Raises ConfigError naming the column."""
    next_id = partial(next, count(1))
    return Schema(
        *(
            NestedField(next_id(), name, parse_type(text, next_id, column=name), required=False)
            for name, text in columns.items()
        )
    )


def parse_type(text: str, next_id: Callable[[], int], *, column: str) -> IcebergType:
    """The type `text` stands for, field ids from `next_id`. Raises ConfigError that names `column` and the forms."""
    tokens = _tokens(text)
    if tokens is None:
        raise _not_a_type(column, text, "holds a character no type has")
    reader = _Reader(column, text, tokens, next_id)
    parsed = reader.read_type()
    if reader.left:
        raise _not_a_type(column, text, f"{reader.left[0]!r} is left over")
    return parsed


def type_text(kind: IcebergType) -> str:
    """The text `parse_type` reads back as `kind`, field ids and docs left out."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{_quoted(f.name)}: {type_text(f.field_type)}' for f in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"list<{type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.value_type)}>"
    return str(kind)


def spark_type_text(kind: IcebergType) -> str:
    """The same for Spark's `CREATE TABLE`."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'`{f.name}`: {spark_type_text(f.field_type)}' for f in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"array<{spark_type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{spark_type_text(kind.key_type)}, {spark_type_text(kind.value_type)}>"
    return _SPARK_NAMES.get(str(kind), str(kind))


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[1])
        at = match.end()
    return tokens


def _not_a_type(column: str, text: str, why: str) -> ConfigError:
    return ConfigError(
        f"column {column}: {text!r} is not a type: {why}", hint=f"write one such as {FORMS}", code=Code.NO_TYPE
    )


class _Reader:
    """Recursive descent over the tokens of one type; `left` are those not read yet."""

    def __init__(self, column: str, text: str, tokens: list[str], next_id: Callable[[], int]) -> None:
        self._column = column
        self._text = text
        self._next_id = next_id
        self.left = tokens

    def read_type(self) -> IcebergType:
        word = self._next("a type")
        nested = {"list": self._list, "map": self._map, "struct": self._struct}
        sized = {"decimal": self._decimal, "fixed": self._fixed}
        if read := nested.get(word):
            self._expect("<")
            kind = read()
            self._expect(">")
            return kind
        if read := sized.get(word):
            return read()
        if word in _SIMPLE:
            return _SIMPLE[word]
        raise self._error(f"{word!r} is unknown; {self._suggestion(word, {*_SIMPLE, *nested, *sized})}")

    def _list(self) -> IcebergType:
        return ListType(self._next_id(), self.read_type(), element_required=False)

    def _map(self) -> IcebergType:
        key = self.read_type()
        self._expect(",")
        return MapType(self._next_id(), key, self._next_id(), self.read_type(), value_required=False)

    def _struct(self) -> IcebergType:
        fields = [self._field()]
        while self.left[:1] == [","]:
            self._expect(",")
            fields.append(self._field())
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            raise self._error("a struct names a field twice")
        return StructType(*fields)

    def _field(self) -> NestedField:
        name = self._next("a field's name")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        self._expect(":")
        return NestedField(self._next_id(), name, self.read_type(), required=False)

    def _decimal(self) -> IcebergType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not 0 < precision <= DECIMAL_DIGITS or scale > precision:
            raise self._error(f"a decimal has 1 to {DECIMAL_DIGITS} digits, its scale at most as many")
        return DecimalType(precision, scale)

    def _fixed(self) -> IcebergType:
        self._expect("[")
        length = self._number()
        self._expect("]")
        return FixedType(length)

    def _number(self) -> int:
        word = self._next("a number")
        if not word.isdecimal():
            raise self._error(f"{word!r} is not a number")
        return int(word)

    def _expect(self, token: str) -> None:
        found = self._next(repr(token))
        if found != token:
            raise self._error(f"{found!r} stands where {token!r} is due")

    def _next(self, wanted: str) -> str:
        if not self.left:
            raise self._error(f"it ends where {wanted} is due")
        return self.left.pop(0)

    def _error(self, why: str) -> ConfigError:
        return _not_a_type(self._column, self._text, why)

    def _suggestion(self, word: str, known: set[str]) -> str:
        other = _OTHER_NAMES.get(word.lower())
        return f"Iceberg calls it {other}" if other else nearest(word.lower(), known)

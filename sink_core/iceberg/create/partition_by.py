"""`auto_create.partition_by`: partition terms as they are written in a pipeline file.

    term = column | year(column) | month(column) | day(column) | hour(column)
         | bucket(N, column) | truncate(W, column)

A nested column is written with dots: `day(_kafka.timestamp)`. Partition fields get the names that Iceberg's own builder
gives them: `column`, `column_year`, …, `column_bucket`, `column_trunc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import ConfigError

FORMS = "column, year(ts), month(ts), day(ts), hour(ts), bucket(16, id) or truncate(4, name)"

_COLUMN = r"[^,()\s](?:[^,()]*[^,()\s])?"
_TERM = re.compile(
    rf"\s*+(?:(?P<function>\w+)\s*+\(\s*+(?:(?P<width>\d++)\s*+,\s*+)?(?P<argument>{_COLUMN})\s*+\)|(?P<column>{_COLUMN}))\s*+"
)
_AnyTransform = Transform[Any, Any]
_TIME: dict[str, Callable[[], _AnyTransform]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_SIZED: dict[str, tuple[Callable[[int], _AnyTransform], str]] = {
    "bucket": (BucketTransform, "bucket"),
    "truncate": (TruncateTransform, "trunc"),
}


@dataclass(frozen=True, slots=True)
class Term:
    """A term read: what is done to which column, and the name of a partition field for it."""

    transform: _AnyTransform
    source_id: int
    name: str


def partition_spec(terms: Iterable[str], schema: Schema, *, table: str) -> PartitionSpec:
    """The spec of `terms` over `schema`. Raises ConfigError naming the table, the term and the nearest column."""
    read = [read_term(term, schema, f"table {table}: partition_by {term!r}") for term in terms]
    fields = [
        PartitionField(term.source_id, PARTITION_FIELD_ID_START + number, term.transform, term.name)
        for number, term in enumerate(read)
    ]
    _refuse_repeated(fields, table)
    return PartitionSpec(*fields)


def read_term(term: str, schema: Schema, where: str) -> Term:
    """One term over `schema`. Raises ConfigError, beginning with `where`, which quotes the term."""
    transform, column, name = _read(term, where)
    source = _source_id(schema, column, where)
    kind = schema.find_type(source)
    if not kind.is_primitive or not transform.can_transform(kind):
        raise ConfigError(
            f"{where}: {transform} doesn't apply to {column}, a {kind}",
            hint=f"choose another column or transform; terms are {FORMS}",
            code=Code.BAD_TERM,
        )
    return Term(transform, source, name)


def _read(term: str, where: str) -> tuple[_AnyTransform, str, str]:
    """Transform, column and the partition field's name."""
    match = _TERM.fullmatch(term)
    if match is None:
        raise ConfigError(f"{where} is no partition term", hint=f"write {FORMS}", code=Code.BAD_TERM)
    if column := match["column"]:
        return IdentityTransform(), column, column
    function, width, column = match["function"], match["width"], match["argument"]
    if function in _TIME and width is None:
        return _TIME[function](), column, f"{column}_{function}"
    if function in _SIZED and width is not None and int(width) > 0:
        transform, suffix = _SIZED[function]
        return transform(int(width)), column, f"{column}_{suffix}"
    raise ConfigError(f"{where}: {_fault(function)}", hint=f"write {FORMS}", code=Code.BAD_TERM)


def _fault(function: str) -> str:
    if function in _TIME:
        return f"{function} takes a column and no number"
    if function in _SIZED:
        return f"{function} takes a number above 0 and a column"
    return f"unknown transform {function}; {nearest(function, [*_TIME, *_SIZED])}"


def _source_id(schema: Schema, column: str, where: str) -> int:
    try:
        return schema.find_field(column).field_id
    except ValueError:
        raise ConfigError(
            f"{where}: unknown column {column}; {nearest(column, schema.column_names)}",
            hint="correct the column, or leave the term out",
            code=Code.BAD_TERM,
        ) from None


def _refuse_repeated(fields: list[PartitionField], table: str) -> None:
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"table {table}: partition_by makes {name} twice", hint="keep one of the terms", code=Code.BAD_TERM
            )

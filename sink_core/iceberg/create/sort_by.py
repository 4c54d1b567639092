"""`auto_create.sort_order` and `auto_create.identifier_fields`: how rows of a new table are ordered, and told apart.

    order = term [ "asc" | "desc" ] [ "nulls first" | "nulls last" ]

Terms are those of `partition_by`. Without more an order is ascending; nulls come first in an ascending order and last
in a descending one, as in Iceberg.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import ConfigError
from calve.sink_core.iceberg.create.partition_by import read_term
from calve.sink_core.records.columns.checked import changed_fields

_ORDER = re.compile(
    r"(?P<term>.+?)(?:(?<!\s)\s++(?P<direction>asc|desc))?(?:(?<!\s)\s++nulls\s++(?P<nulls>first|last))?",
    re.IGNORECASE,
)


def sort_order(orders: Iterable[str], schema: Schema, *, table: str) -> SortOrder:
    """The sort order over `schema`. Raises ConfigError naming the table, the order and the nearest column."""
    fields = [_field(order.strip(), schema, f"table {table}: sort_order {order!r}") for order in orders]
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def _field(order: str, schema: Schema, where: str) -> SortField:
    match = _ORDER.fullmatch(order)
    if match is None:
        raise ConfigError(
            f"{where} is no order",
            hint="write a term such as `at`, `day(at) desc` or `id nulls last`",
            code=Code.BAD_TERM,
        )
    term = read_term(match["term"], schema, where)
    direction = SortDirection((match["direction"] or "asc").lower())
    nulls = NullOrder(f"nulls-{match['nulls'].lower()}") if match["nulls"] else None
    return SortField(term.source_id, term.transform, direction, nulls)


def with_identifiers(schema: Schema, names: Collection[str], *, table: str) -> Schema:
    """`schema` with fields that identify rows: these, and what they are within, are required.

    Raises ConfigError for a column that isn't there or can't be one.
    """
    if not names:
        return schema
    ids = {_identifier(schema, name, f"table {table}: identifier_fields {name!r}") for name in names}

    def require(path: str, field: NestedField) -> Mapping[str, bool]:
        holds = any(name == path or name.startswith(f"{path}.") for name in names)
        return {"required": field.required or holds}

    fields = changed_fields(schema.as_struct(), require).fields
    return Schema(*fields, identifier_field_ids=sorted(ids))


def _identifier(schema: Schema, name: str, where: str) -> int:
    try:
        field = schema.find_field(name)
    except ValueError:
        raise ConfigError(
            f"{where}: unknown column {name}; {nearest(name, schema.column_names)}",
            hint="correct the column",
            code=Code.BAD_TERM,
        ) from None
    parts = name.split(".")
    within = [schema.find_type(".".join(parts[:depth])) for depth in range(1, len(parts))]
    plain = field.field_type.is_primitive and all(isinstance(kind, StructType) for kind in within)
    if not plain or isinstance(field.field_type, FloatType | DoubleType):
        raise ConfigError(
            f"{where}: {name} is {field.field_type}, or within a list or map: it can't tell rows apart",
            hint="name columns of plain types other than float and double, not within lists or maps",
            code=Code.IDENTIFIER_FIELDS,
        )
    return field.field_id

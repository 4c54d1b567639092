"""The Kafka key as a table's key: its fields are columns, or all of it is one. Pure.

What a record's value has under these names is not looked at, but must fit the column.
"""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, TableUnusable
from calve.sink_core.records.changes.keys import NO_KEY
from calve.sink_core.records.columns.type_text import parse_type, type_text
from calve.sink_core.records.decode.decoded import FIT, BadValue, Decoded

KEY_COLUMN = "_key"
"""The column of a key that is a single value."""

KEY = "calve:key"
"""Where a record is a change event: a struct of the key's columns beside what was decoded of the value."""


def key_columns(as_type: str) -> Schema:
    """The columns that keys read as this Iceberg type make. Raises ConfigError if there is no such type."""
    kind = parse_type(as_type, partial(next, count(2)), column="source.key.as")
    return Schema(*kind.fields) if isinstance(kind, StructType) else Schema(NestedField(1, KEY_COLUMN, kind))


def with_key(columns: Schema, key: Schema, *, stated: bool, table: str) -> Schema:
    """Columns for a new table: those of the key, then those of the value under other names. Raises ConfigError if a
    column was `stated` that is another than the key's.
    """
    own = {field.name: field.field_type for field in key.fields}
    for field in columns.fields if stated else ():
        if own.get(field.name, field.field_type) != field.field_type:
            raise ConfigError(
                f"table {table}: auto_create.columns.{field.name} is {type_text(field.field_type)}, and that of the "
                f"Kafka key {type_text(own[field.name])}",
                hint="leave the column out, or correct source.key.as",
                code=Code.KAFKA_KEY,
            )
    first = columns.highest_field_id + 1
    fields = [field.model_copy(update={"field_id": first + at}) for at, field in enumerate(key.fields)]
    return Schema(*fields, *(field for field in columns.fields if field.name not in own))


def check_key_types(schema: Schema, key: Sequence[int], as_type: str, *, table: str) -> None:
    """Raise TableUnusable if the `key` columns (field ids) of a table are of other types than the Kafka keys."""
    for field_id, given in zip(key, key_columns(as_type).fields, strict=True):
        field = schema.find_field(field_id)
        if field.field_type != given.field_type:
            raise TableUnusable(
                f"{table}: key {field.name} is {type_text(field.field_type)}, and Kafka keys are read as "
                f"{type_text(given.field_type)}",
                hint="read them as what the column is: source.key.as, or type: string and bytes for text and binary",
                code=Code.KAFKA_KEY,
            )


def optional_key(schema: Schema, names: Collection[str]) -> Schema:
    """The schema by which values are read, which may lack the key's columns."""
    fields = (f.model_copy(update={"required": False}) if f.name in names else f for f in schema.fields)
    return Schema(*fields, schema_id=schema.schema_id)


def key_parts(keys: pa.Array, names: Sequence[str]) -> Mapping[str, pa.Array]:
    """The key's columns by name; null where a record has no key."""
    return dict(zip(names, keys.flatten() if pa.types.is_struct(keys.type) else [keys], strict=True))


def keyed_rows(rows: pa.RecordBatch, keys: pa.Array, names: Sequence[str]) -> pa.RecordBatch:
    """Rows of values, one for each of `keys`, with the key's columns."""
    return pa.RecordBatch.from_pydict(
        {**dict(zip(rows.schema.names, rows.columns, strict=True)), **key_parts(keys, names)}
    )


def keyed_events(events: pa.RecordBatch, keys: pa.Array, names: Sequence[str]) -> pa.RecordBatch:
    """Change events, one for each of `keys`, with these beside them."""
    parts = key_parts(keys, names)
    return events.append_column(KEY, pa.StructArray.from_arrays(list(parts.values()), names=list(parts)))


def keyless(parts: Mapping[str, pa.Array]) -> dict[int, str]:
    """Which rows have no key, or one without a part, and what to say of them."""
    nulls = {name: pc.is_null(part).to_numpy(zero_copy_only=False) for name, part in parts.items()}
    none = np.logical_and.reduce(list(nulls.values()))
    said = dict.fromkeys(np.flatnonzero(none).tolist(), "no Kafka key, by which rows are told apart")
    for name, lacking in nulls.items():
        text = f"key: {name}: missing or null, and by it rows are told apart"
        said |= {row: text for row in np.flatnonzero(lacking).tolist() if row not in said}
    return said


def told_by(keys: pa.Array, names: Sequence[str], bad: Mapping[int, BadValue]) -> Decoded:
    """What tombstones with these keys say, `bad` ones, by place, left out; one that is missing is bad too."""
    parts = key_parts(keys, names)
    lacking = {row: text if keys[row].is_valid else NO_KEY for row, text in keyless(parts).items()}
    verdicts = {row: BadValue(row, FIT, text) for row, text in lacking.items()} | dict(bad)
    good = [row for row in range(len(keys)) if row not in verdicts]
    rows = pa.RecordBatch.from_pydict(dict(parts)).take(pa.array(good, pa.int64()))
    return Decoded(rows, good, tuple(verdicts[row] for row in sorted(verdicts)))

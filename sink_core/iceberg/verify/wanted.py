"""Which files may have some of the rows that a proof looks at, by their metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

from calve.sink_core.iceberg.files.kafka_rows import may_hold, place_fields
from calve.sink_core.tables.format.proven import RowsOfRuns, Wanted


def may_have(schema: Schema, wanted: Wanted) -> Callable[[DataFile], bool]:
    """Tells files of a table with this schema that may have such rows; one without metrics may."""
    if isinstance(wanted, RowsOfRuns):
        fields, runs = place_fields(schema, struct=wanted.struct), wanted.runs
        return lambda file: may_hold(file, fields, runs)
    field, first = schema.find_field(wanted.column), wanted.since_ms * 1000

    def late_enough(file: DataFile) -> bool:
        high = (file.upper_bounds or {}).get(field.field_id)
        # Both kinds of timestamp are serialised as this.
        return high is None or cast("int", from_bytes(LongType(), high)) >= first

    return late_enough

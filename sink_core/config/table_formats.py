"""The formats of tables, as a pipeline file names them: one row each. What a row leads to is a `Lake`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from calve.sink_core.config.model import refusal

ICEBERG = "iceberg"
"""The format of ledger and dead letters, and of tables that name none."""

HUDI = "hudi"


@dataclass(frozen=True, slots=True)
class TableFormatRow:
    """A format: `make`, as `module:function`, is given an `Opening` of `tables/format.py` and opens a `Lake`."""

    name: str
    make: str


TABLE_FORMATS = {
    row.name: row
    for row in (
        TableFormatRow(ICEBERG, "calve.sink_core.iceberg.lake.opened:iceberg_lake"),
        TableFormatRow(HUDI, "calve.sink_core.hudi.lake:hudi_lake"),
    )
}
"""By name, in the order in which documents list them."""


def _known(name: str) -> str:
    if name not in TABLE_FORMATS:
        raise refusal(f"{name} is no format of tables: {', '.join(TABLE_FORMATS)}")
    return name


TableFormatName = Annotated[
    str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(TABLE_FORMATS)})
]

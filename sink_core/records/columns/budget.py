"""What a schema may cost, whoever registered it: beyond this it is none, and its records are dead letters.

A text of some kilobytes may name types that name types, each twice: written out at each place, as columns are, it has
more fields than a machine has room for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

MOST_CHARACTERS = 4 * 1024**2
"""Of a schema's text and the texts that it refers to, together."""
MOST_REFERENCES = 500
MOST_FIELDS = 20_000
"""Of columns, those within lists, maps and structs included, a type counted at each place that names it."""
MOST_FIXED = 4096
"""Bytes of values that all have as many: in memory a null takes no fewer."""
MOST_LEVELS = 50
"""Of types within each other, and of schemas that refer to each other."""
COMPILE_CPU_S, COMPILE_BYTES = 10, 2 * 1024**3
"""Of protoc for one schema: seconds of a processor, and addresses."""

S = TypeVar("S")


class BeyondBudget(ConfigError):
    """A schema costs more than one may."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="name the columns under auto_create.columns", code=Code.SCHEMA_TOO_LARGE)


@dataclass(slots=True)
class FieldIds:
    """Field ids for the columns of the schema called `name`, from 1."""

    name: str
    last: int = 0

    def __call__(self, path: str = "") -> int:
        """The next id, for a field within that of the dotted path. Raises BeyondBudget."""
        if path.count(".") > MOST_LEVELS:
            raise BeyondBudget(f"{self.name} has more than {MOST_LEVELS} types within each other")
        self.last += 1
        if self.last > MOST_FIELDS:
            raise BeyondBudget(
                f"{self.name} has more than {MOST_FIELDS:,} fields, each type counted at each place that names it"
            )
        return self.last


def within_budget(schema: S, columns_of: Callable[[S], object]) -> S:
    """The schema, whose columns `columns_of` makes. Raises ValueError if they are beyond the budget."""
    try:
        columns_of(schema)
    except BeyondBudget as error:
        raise ValueError(error.message) from None
    except ConfigError:
        pass  # one without columns of its own, whose records may still be read
    return schema

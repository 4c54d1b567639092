"""`FlatMap`: what Connect says a source partition or a source offset is, as a value that can be a key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import cast

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

Primitive = str | int | float | bool | None
"""What may stand in one. Bytes are no JSON."""


class FlatMap(Mapping[str, Primitive]):
    """A mapping of strings to primitives that never changes; equal to another one that has the same JSON.

    `FlatMap({"file": "a.jsonl"})`. Raises ConfigError for what is not flat, and for numbers that JSON hasn't.
    """

    __slots__ = ("_values", "json")

    json: str
    """Compact, keys sorted, nothing escaped that need not be: the same for the same fields, wherever it is made."""

    def __init__(self, values: Mapping[str, Primitive]) -> None:
        self._values = _checked(values)
        self.json = json.dumps(self._values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def parsed(cls, text: str | bytes) -> FlatMap:
        """From JSON, however it was written. Raises ConfigError for anything but a flat object."""
        try:
            values: object = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"not JSON: {text!r}", hint=_HINT, code=Code.NOT_FLAT) from error
        return cls(_checked(values))

    def __getitem__(self, key: str) -> Primitive:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # By its JSON, in which 1, 1.0 and true differ.
    def __hash__(self) -> int:
        return hash(self.json)

    def __eq__(self, other: object) -> bool:
        return self.json == other.json if isinstance(other, FlatMap) else NotImplemented

    def __lt__(self, other: FlatMap) -> bool:
        return self.json < other.json

    def __repr__(self) -> str:
        return f"FlatMap({self.json})"

    def __reduce__(self) -> tuple[object, ...]:
        return FlatMap, (self._values,)


_HINT = "a source's partitions and offsets are flat: names with texts, numbers, true, false or null"


def _checked(values: object) -> dict[str, Primitive]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"not a mapping: {values!r}", hint=_HINT, code=Code.NOT_FLAT)
    found = dict[str, Primitive]()
    for name, value in cast(Mapping[object, object], values).items():
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is no text: a field's name is one", hint=_HINT, code=Code.NOT_FLAT)
        if not isinstance(value, Primitive) or (isinstance(value, float) and not math.isfinite(value)):
            raise ConfigError(f"{name}: {value!r} can't stand in a source offset", hint=_HINT, code=Code.NOT_FLAT)
        found[name] = value
    return found

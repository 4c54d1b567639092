"""Frozen values made of what Avro reads: records become the classes that their fields name, lists become tuples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
Change = Callable[[Any], Any]


def maker_of(cls: type[T]) -> Callable[[dict[str, Any]], T]:
    """What makes a value of a dataclass of a record with its fields; it takes the record over."""
    hints = get_type_hints(cls)
    own: list[str] = [each.name for each in fields(cls)] if is_dataclass(cls) else []
    changes = [(name, change) for name in own if (change := _change(hints[name])) is not None]

    def make(record: dict[str, Any]) -> T:
        for name, change in changes:
            record[name] = change(record[name])
        return cls(**record)

    return make


def _change(hint: Any) -> Change | None:
    """What has to become of a value of this type; None if it is what it should be."""
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return maker_of(hint)
    if origin is tuple:
        return _tuple(_change(inner[0]))
    if origin is Mapping and (of_value := _change(inner[1])) is not None:
        return lambda mapping: {key: of_value(value) for key, value in mapping.items()}
    if type(None) in inner and (of_some := _change(inner[0])) is not None:
        return lambda value: None if value is None else of_some(value)
    return None


def _tuple(of_item: Change | None) -> Change:
    return tuple if of_item is None else lambda items: tuple(map(of_item, items))

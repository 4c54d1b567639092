"""Sizes, durations and percentages, written with their unit.

In a model `Bytes` is an int of bytes, `Duration` a float of seconds with millisecond resolution, `Percent` a fraction
between 0 and 1. In a file, and when a model is dumped, each is a text such as `256MiB`, `500ms` or `5%`. A bare number
is refused, 0 excepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from calve.sink_core.config.model import refusal

KIB, MIB, GIB = 2**10, 2**20, 2**30
SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3600.0, 86400.0

_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z%]*)\s*")


@dataclass(frozen=True)
class _Scale:
    """A kind of quantity: its units, each as a whole number of the smallest one, and how to write it."""

    kind: str
    smallest: str
    zero: str
    units: Mapping[str, int]
    example: str
    any_case: bool

    def parse(self, given: object) -> int:
        """How many of the smallest unit. Raises an error that shows the form."""
        if given == 0 and not isinstance(given, bool):
            return 0
        match = _NUMBER.fullmatch(given) if isinstance(given, str) else None
        if match is None or (not match[2] and Decimal(match[1]) != 0):
            lacking = "has no unit" if match or isinstance(given, int | float) else f"is not a {self.kind}"
            raise refusal(f"{given!r} {lacking}; write a {self.kind} such as {self.example}")
        amount = Decimal(match[1]) * self._factor(match[2], given)
        if amount != int(amount):
            raise refusal(
                f"{given!r} is not a whole number of {self.smallest}; write a {self.kind} such as {self.example}"
            )
        return int(amount)

    def _factor(self, unit: str, given: object) -> int:
        for name, factor in self.units.items():
            if unit in ("", name) or (self.any_case and unit.lower() == name.lower()):
                return factor
        known = ", ".join(self.units)
        raise refusal(f"{given!r} has the unknown unit {unit!r}; units are {known}, as in {self.example}")

    def render(self, amount: int) -> str:
        """The shortest text that `parse` reads back as the same amount."""
        exact = [f"{amount // factor}{unit}" for unit, factor in self.units.items() if amount % factor == 0]
        return min(exact, key=len) if amount else self.zero

    def schema(self) -> WithJsonSchema:
        """A JSON Schema; its `format` names the kind for the reference page."""
        names = "|".join(_any_case(unit) if self.any_case else unit for unit in self.units)
        pattern = rf"^\s*(0|\d+(\.\d+)?\s*({names}))\s*$"
        kind = {"type": ["string", "integer"], "format": f"calve-{self.kind}"}
        return WithJsonSchema({**kind, "pattern": pattern, "minimum": 0, "maximum": 0})


def _any_case(text: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in text)


_SIZE = _Scale(
    kind="size",
    smallest="bytes",
    zero="0B",
    units={
        "B": 1,
        "kB": 10**3,
        "KiB": 2**10,
        "MB": 10**6,
        "MiB": 2**20,
        "GB": 10**9,
        "GiB": 2**30,
        "TB": 10**12,
        "TiB": 2**40,
    },
    example="256MiB, 4GiB or 1.5GB",
    any_case=True,
)
_TIME = _Scale(
    kind="duration",
    smallest="milliseconds",
    zero="0s",
    units={"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000},
    example="500ms, 5s, 10m, 2h or 7d",
    any_case=False,
)


def _seconds(given: object) -> float:
    return _TIME.parse(given) / 1000


def _duration_text(seconds: float) -> str:
    return _TIME.render(round(seconds * 1000))


def _fraction(given: object) -> float:
    match = _NUMBER.fullmatch(given) if isinstance(given, str) else None
    if given == 0 and not isinstance(given, bool):
        return 0.0
    if match is None or match[2] != "%" or Decimal(match[1]) > 100:
        raise refusal(f"{given!r} is not a percentage between 0% and 100%; write one such as 5% or 0.1%")
    return float(Decimal(match[1]) / 100)


def _percent_text(fraction: float) -> str:
    return f"{(Decimal(repr(fraction)) * 100).normalize():f}%"


def _batch_or_seconds(given: object) -> object:
    if given == "batch":
        return given
    if not _seconds(given):
        raise refusal(f"{given!r} is no interval; write batch, or a duration such as {_TIME.example}")
    return _seconds(given)


def _batch_or_text(value: str | float) -> str:
    return value if isinstance(value, str) else _duration_text(value)


_PERCENT_SCHEMA = {
    "type": ["string", "integer"],
    "pattern": r"^\s*\d+(\.\d+)?\s*%\s*$",
    "minimum": 0,
    "maximum": 0,
    "format": "calve-percentage",
}
_EVERY_SCHEMA = {"anyOf": [{"const": "batch"}, _TIME.schema().json_schema]}

Bytes = Annotated[int, BeforeValidator(_SIZE.parse), PlainSerializer(_SIZE.render, return_type=str), _SIZE.schema()]
Duration = Annotated[float, BeforeValidator(_seconds), PlainSerializer(_duration_text, return_type=str), _TIME.schema()]
Percent = Annotated[
    float, BeforeValidator(_fraction), PlainSerializer(_percent_text, return_type=str), WithJsonSchema(_PERCENT_SCHEMA)
]
BatchOrDuration = Annotated[
    Literal["batch"] | float,
    BeforeValidator(_batch_or_seconds),
    PlainSerializer(_batch_or_text, return_type=str),
    WithJsonSchema(_EVERY_SCHEMA),
]

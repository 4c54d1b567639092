"""Types of PostgreSQL, domains and arrays of them, with values as somebody types them; and the JSON that each has by
PostgreSQL's own text.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXT = st.text(_CHARACTERS, max_size=12) | st.sampled_from(
    ["", "NULL", "null", '"', "\\", "{a,b}", "a,b", " x ", "\\N"]
)
_YEAR = st.integers(1, 9999) | st.sampled_from([1, 44, 1582, 1970, 9999, 12000, 15000])
_DIGITS = st.integers(-(10**6), 10**6)


def _whole(bits: int) -> SearchStrategy[str]:
    least = -(2 ** (bits - 1))
    return st.integers(least, -least - 1).map(str) | st.sampled_from([str(least), str(-least - 1), "0"])


def _fractions(width: Literal[32, 64]) -> SearchStrategy[str]:
    return st.floats(width=width).map(repr).map(lambda each: {"inf": "Infinity", "-inf": "-Infinity"}.get(each, each))


_DECIMALS = st.decimals(allow_nan=False, allow_infinity=False).filter(lambda each: abs(each.adjusted()) < 90)
_TIMES = st.times().map(str) | st.sampled_from(["24:00:00", "00:00:00.000001"])
_DAY = st.builds("{:02}-{:02}".format, st.integers(1, 12), st.integers(1, 28))
# 4713 BC is the first year that PostgreSQL has.
_BEFORE = st.builds("{:04}-{} BC".format, st.integers(1, 4712), _DAY)
_DAYS = st.builds("{:04}-{}".format, _YEAR, _DAY) | _BEFORE
_ENDLESS = st.sampled_from(["infinity", "-infinity"])
_DATES = _DAYS | _ENDLESS
_STAMPS = st.builds(lambda day, time: f"{day[:-3]} {time} BC" if day.endswith("C") else f"{day} {time}", _DAYS, _TIMES)
_ZONED = st.builds(
    lambda stamp, zone: f"{stamp[:-3]}{zone} BC" if stamp.endswith("C") else f"{stamp}{zone}",
    _STAMPS,
    st.sampled_from(["+00", "+05:30", "-11", "+02:17"]),
)
_SPANS = st.builds(
    "{} years {} mons {} days {}:{:02}:{:02}.{:06}".format,
    _DIGITS.map(lambda each: each // 100),
    st.integers(-11, 11),
    _DIGITS,
    st.integers(-9999, 9999),
    st.integers(0, 59),
    st.integers(0, 59),
    st.integers(0, 999_999),
)
_IP = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(_CHARACTERS, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(_CHARACTERS, max_size=3), inner, max_size=3),
    max_leaves=5,
).map(lambda each: json.dumps(each).replace("\\u0000", ""))


def _numbers_between() -> SearchStrategy[str]:
    low_high = st.tuples(_DIGITS, _DIGITS).map(lambda pair: (min(pair), max(pair)))
    return low_high.map(lambda pair: f"[{pair[0]},{pair[1]})") | st.sampled_from(["empty", "(,)", "[1,)", "(,5]"])


_RANGES = st.builds("[{},{})".format, _BEFORE, st.sampled_from(["infinity", "", "2024-01-01"]))
_MADE = {
    "smallint": _whole(16),
    "integer": _whole(32),
    "bigint": _whole(64),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "real": _fractions(32),
    "double precision": _fractions(64),
    "numeric": _DECIMALS.map("{:f}".format) | st.sampled_from(["NaN", "Infinity", "-Infinity", "0.00"]),
    "boolean": st.sampled_from(["t", "f"]),
    "text": _TEXT,
    "varchar": _TEXT,
    "character(9)": st.text(_CHARACTERS, max_size=9),
    "name": st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20),
    '"char"': st.sampled_from(["a", "", "}", '"']),
    "uuid": st.uuids().map(str),
    "json": _JSON,
    "jsonb": _JSON,
    "bytea": st.binary(max_size=9).map(lambda each: f"\\x{each.hex()}"),
    "date": _DATES,
    "time": _TIMES,
    "timetz": st.builds("{}{}".format, _TIMES, st.sampled_from(["+00", "+05:30", "-11"])),
    "timestamp": _STAMPS | _ENDLESS,
    "timestamptz": _ZONED | _ENDLESS,
    "interval": _SPANS,
    "inet": _IP,
    "cidr": _IP,
    "macaddr": st.binary(min_size=6, max_size=6).map(bytes.hex),
    "bit(3)": st.text("01", min_size=3, max_size=3),
    "varbit": st.text("01", max_size=9),
    "money": _DIGITS.map(str),
    "point": st.builds("({},{})".format, _fractions(64), _fractions(64)),
    "box": st.builds("({},{}),({},{})".format, _DIGITS, _DIGITS, _DIGITS, _DIGITS),
    "pg_lsn": st.builds("{:X}/{:X}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    "tsvector": st.lists(st.sampled_from(["cat", "dog", "'it''s'"]), max_size=3).map(" ".join),
    "int4range": _numbers_between(),
    "numrange": _numbers_between(),
    "daterange": _RANGES,
    "tsrange": _RANGES,
    "tstzrange": _RANGES,
    "int8multirange": st.lists(_numbers_between(), max_size=3).map(lambda each: "{" + ",".join(each) + "}"),
    "mood": st.sampled_from(["so, so", 'a "b"', "NULL"]),
    "pair": st.builds("({},)".format, _DIGITS) | st.just("(,)"),
}
PREPARE = (
    "CREATE TYPE mood AS ENUM ('so, so', 'a \"b\"', 'NULL')",
    "CREATE TYPE pair AS (a int, b text)",
)
"""What a database needs for the types that are not built in."""


@dataclass(frozen=True)
class Kind:
    """A type: `base` of PostgreSQL, in `arrays` (0 or 1) within so many `domains` inside and outside of the array."""

    base: str
    arrays: int
    inner: int
    outer: int

    @property
    def is_numeric(self) -> bool:
        return self.base in ("smallint", "integer", "bigint", "oid", "real", "double precision")

    def statements(self, name: str) -> tuple[list[str], str]:
        """What makes it, domains called after `name`, and its name."""
        made, current = list[str](), self.base
        for at in range(self.inner):
            made.append(f"CREATE DOMAIN {name}_i{at} AS {current}")
            current = f"{name}_i{at}"
        current += "[]" * self.arrays
        for at in range(self.outer):
            made.append(f"CREATE DOMAIN {name}_o{at} AS {current}")
            current = f"{name}_o{at}"
        return made, current


KINDS = st.builds(Kind, st.sampled_from(sorted(_MADE)), st.integers(0, 1), st.integers(0, 2), st.integers(0, 1))


def values_of(kind: Kind) -> SearchStrategy[str | None]:
    """As texts that PostgreSQL takes for the type."""
    single = _MADE[kind.base]
    if not kind.arrays:
        return st.none() | single
    delimiter = ";" if kind.base == "box" else ","

    def listed(items: list[str | None]) -> str:
        return "{" + delimiter.join("NULL" if each is None else _in_quotes(each) for each in items) + "}"

    one = st.lists(st.none() | single, max_size=4)
    shifted = one.filter(bool).map(lambda items: f"[0:{len(items) - 1}]={listed(items)}")
    both = st.tuples(single, single).map(list)
    two = st.lists(both, min_size=1, max_size=2).map(
        lambda rows: "{" + delimiter.join(listed(list(row)) for row in rows) + "}"
    )
    return st.none() | one.map(listed) | shifted | two


def _in_quotes(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def as_json(kind: Kind, text: str | None) -> Any:
    """What the JSON of a value must be, by PostgreSQL's text of it in a session of UTC. Numbers are texts here too."""
    if text is None:
        return None
    if not kind.arrays or kind.base == "box":
        return _single(kind, text)
    return _listed(kind, re.sub(r"^(\[-?\d+:-?\d+\])+=", "", text))


def _listed(kind: Kind, text: str) -> Any:
    found, stack = None, list[list[Any]]()
    at = 0
    while at < len(text):
        mark = text[at]
        if mark == "{":
            stack.append([])
        elif mark == "}":
            found = stack.pop()
            if stack:
                stack[-1].append(found)
        elif mark == '"':
            item, at = "", at + 1
            while text[at] != '"':
                at += text[at] == "\\"
                item += text[at]
                at += 1
            stack[-1].append(_single(kind, item))
        elif mark != ",":
            end = next(i for i in range(at, len(text)) if text[i] in ",}")
            item = text[at:end]
            stack[-1].append(None if item == "NULL" else _single(kind, item))
            at = end - 1
        at += 1
    return found


def _single(kind: Kind, text: str) -> Any:
    if kind.base == "boolean":
        return {"t": True, "f": False}[text]
    if kind.is_numeric and text not in ("NaN", "Infinity", "-Infinity"):
        return Number(text)
    if kind.base == "bytea":
        return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    if kind.base == "timestamp":
        return text if text.endswith("BC") else text.replace(" ", "T")
    if kind.base == "timestamptz" and text.endswith("+00"):
        return text.removesuffix("+00").replace(" ", "T") + "Z"
    return text


class Number(str):
    """A number of JSON by its digits."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str(self) == str(other)

    __hash__ = str.__hash__


def parsed(value: bytes | None) -> Any:
    """JSON with the digits that it has."""
    return json.loads(value or b"null", parse_int=Number, parse_float=Number)

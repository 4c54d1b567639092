"""Columns of every type, the values that records may have for them, and what a table then has.

A value is drawn as what a producer means, whether its column can hold it or not: a whole number for `int`, days since
1970 for `date`, microseconds for a timestamp, a list, a dict. `stored` is what every reader has to find.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any
from uuid import UUID

SELDOM = 0.004
"""How often a value is one that its column can't hold."""

ABSENT = 0.1
EXACT = Context(prec=100)
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000
_EPOCH = datetime.fromisoformat("1970-01-01")


class Unfit(Exception):
    """A value has no place in its column."""


@dataclass(frozen=True)
class Leaf:
    """A column of a plain type: what its values may be, what does not fit it, and how the table has a value."""

    text: str
    values: Sequence[Any]
    unfit: Sequence[Any] = ()
    any_value: Callable[[Random], Any] | None = None
    stored: Callable[[Any], Any] = lambda value: value

    def draw(self, chance: Random) -> Any:
        if self.unfit and chance.random() < SELDOM:
            return chance.choice(self.unfit)
        if self.any_value is not None and chance.random() < 0.6:
            return self.any_value(chance)
        return chance.choice(self.values)


@dataclass(frozen=True)
class ListOf:
    item: Type
    gaps: bool = True

    @property
    def text(self) -> str:
        return f"list<{self.item.text}>"


@dataclass(frozen=True)
class MapOf:
    item: Type
    gaps: bool = True

    @property
    def text(self) -> str:
        return f"map<string, {self.item.text}>"


@dataclass(frozen=True)
class StructOf:
    fields: Mapping[str, Type]

    @property
    def text(self) -> str:
        return f"struct<{', '.join(f'{name}: {kind.text}' for name, kind in self.fields.items())}>"


Type = Leaf | ListOf | MapOf | StructOf


def draw(kind: Type, chance: Random) -> Any:
    """A value of the type, fit or unfit; None for none."""
    if chance.random() < ABSENT and not (isinstance(kind, ListOf | MapOf) and not kind.gaps):
        return None
    return present(kind, chance)


def present(kind: Type, chance: Random) -> Any:
    """A value of the type that is not null."""
    if isinstance(kind, Leaf):
        return kind.draw(chance)
    if isinstance(kind, StructOf):
        return {name: draw(of, chance) for name, of in kind.fields.items()}
    item = draw if kind.gaps else present
    count = chance.choice((0, 1, 1, 2, 3, 7))
    if isinstance(kind, ListOf):
        return [item(kind.item, chance) for _ in range(count)]
    return {chance.choice(_KEYS): item(kind.item, chance) for _ in range(count)}


def stored(kind: Type, value: Any) -> Any:
    """What a table has for a value. Raises Unfit."""
    if value is None:
        return None
    if isinstance(kind, Leaf):
        return kind.stored(value)
    if isinstance(kind, ListOf):
        return [stored(kind.item, item) for item in value]
    if isinstance(kind, MapOf):
        return {key: stored(kind.item, item) for key, item in value.items()}
    return {name: stored(of, value[name]) for name, of in kind.fields.items()}


def same(kind: Type, one: Any, other: Any) -> bool:
    """Whether two stored values are the same, to the sign of a zero; NaN is NaN."""
    if one is None or other is None:
        return one is other
    if isinstance(kind, Leaf):
        if kind.text in ("float", "double"):
            return struct.pack("d", one) == struct.pack("d", other) or (math.isnan(one) and math.isnan(other))
        return bool(one == other)
    if isinstance(kind, ListOf):
        return len(one) == len(other) and all(same(kind.item, a, b) for a, b in zip(one, other, strict=True))
    if isinstance(kind, MapOf):
        return one.keys() == other.keys() and all(same(kind.item, one[key], other[key]) for key in one)
    return one.keys() == other.keys() and all(same(of, one[name], other[name]) for name, of in kind.fields.items())


def _within(low: int, high: int) -> Callable[[int], int]:
    def fits(value: int) -> int:
        if not low <= value < high:
            raise Unfit
        return value

    return fits


def _whole(bits: int) -> Callable[[Random], int]:
    """A whole number of any length up to so many bits."""
    return lambda chance: chance.getrandbits(chance.randint(1, bits - 1)) * chance.choice((1, -1))


def _digits(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    def fits(value: Decimal) -> Decimal:
        exact = -int(value.normalize(EXACT).as_tuple().exponent) <= scale
        if not exact or value.copy_abs() >= Decimal(10) ** (precision - scale):
            raise Unfit
        return value

    return fits


def _decimal(digits: int, scale: int) -> Callable[[Random], Decimal]:
    def made(chance: Random) -> Decimal:
        number = chance.randrange(10 ** chance.randint(1, digits)) * chance.choice((1, -1))
        return Decimal(number).scaleb(-scale, EXACT)

    return made


def single(value: float) -> float:
    """The nearest 32-bit number. Raises Unfit for what is beyond them."""
    if math.isfinite(value) and abs(value) > _SINGLES[4]:
        raise Unfit
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _any_double(chance: Random) -> float:
    found = float(struct.unpack("d", chance.randbytes(8))[0])
    return 0.1 if math.isnan(found) or math.isinf(found) else found


def _any_single(chance: Random) -> float:
    found = float(struct.unpack("f", chance.randbytes(4))[0])
    return 0.5 if math.isnan(found) or math.isinf(found) else found


def _near_single(chance: Random) -> float:
    return _any_single(chance) * 1.000_000_01


def _any_text(chance: Random) -> str:
    letters = ("a", "Z", "0", " ", '"', "\\", "\n", "\0", "é", "e\u0301", "\u2028", "\ufeff", "日", "😀", "\x7f", "{")
    return "".join(chance.choices(letters, k=chance.choice((0, 1, 3, 9, 40))))


def text(value: str) -> str:
    """Raises Unfit for half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit from None
    return value


def _of_length(length: int) -> Callable[[bytes], bytes]:
    def fits(value: bytes) -> bytes:
        if len(value) != length:
            raise Unfit
        return value

    return fits


def day(value: int) -> date:
    """Of days since 1970. Raises Unfit before the year 1 and after 9999."""
    if not _FIRST_DAY <= value <= _LAST_DAY:
        raise Unfit
    return date(1970, 1, 1) + timedelta(days=value)


def moment(value: int) -> datetime:
    """Of microseconds since 1970. Raises as `day` does."""
    day(value // _DAY_US)
    return _EPOCH + timedelta(microseconds=value)


def zoned(value: int) -> datetime:
    return moment(value).replace(tzinfo=UTC)


_KEYS = ("", "a", "A", "key", "ключ", "😀", "a.b", '"', "element", "value")
_DAYS = (_FIRST_DAY, -1, 0, 19_782, _LAST_DAY)
_OFF_DAYS = (_FIRST_DAY - 1, _LAST_DAY + 1)
_MOMENTS = (_FIRST_DAY * _DAY_US, -1, 0, 1_709_208_000_123_456, (_LAST_DAY + 1) * _DAY_US - 1)
_OFF_MOMENTS = (_FIRST_DAY * _DAY_US - 1, (_LAST_DAY + 1) * _DAY_US)
_DOUBLES = (0.0, -0.0, 1.5, math.pi, 5e-324, -1.7976931348623157e308, math.nan, math.inf, -math.inf, 2.0**53)
_SINGLES = (0.0, -0.0, 1.5, 1.401298464324817e-45, 3.4028234663852886e38, -math.inf, math.nan)


def _any_day(chance: Random) -> int:
    return chance.randint(_FIRST_DAY, _LAST_DAY)


def _any_moment(chance: Random) -> int:
    return chance.randrange(_FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US)


BOOLEAN = Leaf("boolean", (True, False))
INT = Leaf("int", (2**31 - 1, -(2**31), 0, -1), (2**31, -(2**31) - 1, 2**62), _whole(32), _within(-(2**31), 2**31))
LONG = Leaf("long", (2**63 - 1, -(2**63), 2**53 + 1, 0), (), _whole(64), _within(-(2**63), 2**63))
LONG_OF_ANY = Leaf("long", LONG.values, (2**63, -(2**63) - 1, 10**19, 10**40), LONG.any_value, LONG.stored)
DOUBLE = Leaf("double", _DOUBLES, (), _any_double)
FLOAT = Leaf("float", _SINGLES, (), _any_single)
FLOAT_OF_DOUBLE = Leaf("float", _SINGLES, (3.5e38, -1e300), _near_single, single)
PRICE = Leaf(
    "decimal(9, 2)",
    tuple(map(Decimal, ("0", "-0.01", "9999999.99", "1E+3", "1.50"))),
    tuple(map(Decimal, ("0.001", "10000000", "-12345678.91"))),
    _decimal(9, 2),
    _digits(9, 2),
)
BIG = Leaf(
    "decimal(38, 10)",
    (Decimal(10**38 - 1).scaleb(-10, EXACT), Decimal(1 - 10**38).scaleb(-10, EXACT), Decimal(0)),
    (Decimal(10**28),),
    _decimal(38, 10),
    _digits(38, 10),
)
TEXT = Leaf("string", ("", "a", "null", "x" * 300), (), _any_text, text)
TEXT_OF_JSON = Leaf("string", TEXT.values, ("\ud800", "a\udc00b"), _any_text, text)
BINARY = Leaf("binary", (b"", b"\0", bytes(range(256))), (), lambda chance: chance.randbytes(chance.randrange(40)))
FIXED = Leaf("fixed[4]", (b"0123", b"\0\0\0\0"), (b"", b"012", b"01234"), lambda c: c.randbytes(4), _of_length(4))
A_UUID = Leaf("uuid", (UUID(int=0), UUID(int=2**128 - 1)), (), lambda chance: UUID(int=chance.getrandbits(128)))
DATE = Leaf("date", _DAYS, _OFF_DAYS, _any_day, day)
TIMESTAMP = Leaf("timestamp", _MOMENTS, _OFF_MOMENTS, _any_moment, moment)
TIMESTAMPTZ = Leaf("timestamptz", _MOMENTS, _OFF_MOMENTS, _any_moment, zoned)
MILLIS = Leaf(
    "timestamptz",
    tuple(value // 1000 * 1000 for value in _MOMENTS),
    tuple(value // 1000 * 1000 for value in _OFF_MOMENTS),
    lambda chance: _any_moment(chance) // 1000 * 1000,
    zoned,
)
UNSIGNED = Leaf("decimal(20, 0)", (0, 2**64 - 1), (), lambda chance: chance.getrandbits(64), Decimal)

"""Columns and JSON records by chance: mostly such as fit, some that don't, some that are broken."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

COLUMNS = ("boolean", "int", "long", "float", "double", "string", "timestamptz", "date", "uuid")
NAMES = ("a", "b", "long_name_of_a_field", "é", "x y", "id", "at")
OTHERS = ("other", "more", "A", "", "long_name_of_a_fielD")

_TEXTS = (
    "",
    "a",
    "plain text that is longer than a word",
    "ünï¢ode",
    "日本語",
    "😀",
    "tab\tand\nline",
    'a "quote"',
    "\\",
    "\0",
    "é" * 9,
)
_RAW = (
    '"\\u0041"',
    '"\\ud83d\\ude00"',
    '"\\ud800"',
    '"\\ude00"',
    '"\\ud83dx"',
    '"\\/\\b\\f\\n\\r\\t"',
    '"\\x"',
    '"\\u12"',
    '"a\tb"',
    '"a\nb"',
    '"\\u00e9é"',
    '"',
    '"\\',
    "NaN",
    "-Infinity",
    "Inf",
    '"NaN"',
    '"Infinity"',
    '"-Infinity"',
    '"-NaN"',
    '"nan"',
    '"Inf"',
    '"Infinity "',
    '"Infinit"',
    '"--Infinity"',
    '"\\u004eaN"',
    '"1.5"',
    "nul",
    "nullx",
    "tru",
    "truefalse",
    "01",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "0x1",
    "1.0",
    "-0",
    "-0.0",
    "1e2",
    "1E-2",
    "1e400",
    "-1e400",
    "1e-400",
    "5e-324",
    "2.2250738585072014e-308",
    "1.7976931348623157e308",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "12345678901234567890",
    "0.1234567890123456789",
    "1.234567890123456789012",
    "98765432109876543210.5",
    "0.00001234567890123456789",
    "9007199254740993",
    "9007199254740993.0",
    "1" * 400,
    "0." + "0" * 400 + "1",
    "[]",
    "{}",
    "[1,]",
    '{"a":1,}',
    "[[[]]]",
    "[" * 70 + "]" * 70,
    '{"a":{"a":[1,"x",null]}}',
    "",
    "'a'",
    "{1:1}",
    "[1 2]",
    "/**/1",
    "3.4028236e38",
    "1e39",
    "340282356779733661637539395458142568447.9",
)
_BYTES = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"\t",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"0",
    b"-",
    b"e",
    b".",
    b"u",
    b"n",
    b"\xef\xbb\xbf",
    b"\xc2\x85",
)
_BLANKS = ("", "", "", "", " ", "\t", "\r\n", "  ")


def any_columns(chance: random.Random, depth: int = 2) -> dict[str, str]:
    """Names with types as a pipeline file has them."""
    names = chance.sample(NAMES, chance.randint(1, len(NAMES)))
    return {name: _any_type(chance, depth) for name in names}


def _any_type(chance: random.Random, depth: int) -> str:
    if depth and chance.random() < 0.25:
        fields = ", ".join(f"{name}: {kind}" for name, kind in any_columns(chance, depth - 1).items() if name.isalpha())
        return f"struct<{fields}>" if fields else "string"
    return chance.choice(COLUMNS)


def any_record(kinds: dict[str, object], chance: random.Random, odd: float) -> bytes:
    """A record for fields of some kinds: names of types, or the same of structs."""
    value = _any_object(kinds, chance, odd).encode()
    if chance.random() < odd:
        at = chance.randrange(len(value) + 1)
        kept = at + chance.choice((0, 0, 1, 1, 2, 9))
        value = value[:at] + chance.choice(_BYTES) * chance.randint(0, 2) + value[kept:]
    return value


def _any_object(kinds: dict[str, object], chance: random.Random, odd: float) -> str:
    names = [name for name in kinds if chance.random() < 0.9]
    if chance.random() < 0.2:
        chance.shuffle(names)
    if names and chance.random() < odd / 2:
        names.append(chance.choice(names))
    if chance.random() < odd:
        names.insert(chance.randrange(len(names) + 1), chance.choice(OTHERS))
    members = [
        f"{_key(name, chance, odd)}{_blank(chance, odd)}:{_blank(chance, odd)}{_member(kinds.get(name), chance, odd)}"
        for name in names
    ]
    comma = f"{_blank(chance, odd)},{_blank(chance, odd)}"
    return (
        f"{_blank(chance, odd)}{{{_blank(chance, odd)}{comma.join(members)}{_blank(chance, odd)}}}{_blank(chance, odd)}"
    )


def _key(name: str, chance: random.Random, odd: float) -> str:
    return json.dumps(name, ensure_ascii=chance.random() < odd / 5)


def _blank(chance: random.Random, odd: float) -> str:
    return chance.choice(_BLANKS) if chance.random() < odd else ""


def _member(kind: object, chance: random.Random, odd: float) -> str:
    if chance.random() < 0.1:
        return "null"
    if chance.random() < odd / 3:
        return chance.choice(_RAW)
    if isinstance(kind, dict):
        return _any_object(kind, chance, odd)
    if kind is None or chance.random() < odd / 10:
        return chance.choice([*_VALUES.values()])(chance)
    return _VALUES[str(kind)](chance)


def _double(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return repr(
            chance.choice((chance.random(), round(chance.uniform(-1e4, 1e4), 2), float(chance.getrandbits(60))))
        )
    return json.dumps(struct.unpack("<d", chance.randbytes(8))[0])


def _text(chance: random.Random) -> str:
    return json.dumps(chance.choice(_TEXTS) + chance.choice(_TEXTS), ensure_ascii=chance.random() < 0.3)


_VALUES: dict[str, Callable[[random.Random], str]] = {
    "boolean": lambda chance: chance.choice(("true", "false")),
    "int": lambda chance: str(chance.randrange(-(2**31), 2**31) >> chance.randrange(31)),
    "long": lambda chance: str(chance.randrange(-(2**63), 2**63) >> chance.randrange(63)),
    "float": lambda chance: repr(round(chance.uniform(-100, 100), 3)),
    "double": _double,
    "string": _text,
    "timestamptz": lambda chance: f'"2026-0{chance.randint(1, 9)}-11T10:11:12.{chance.randrange(10**6):06d}Z"',
    "date": lambda chance: f'"2026-{chance.randint(1, 13):02d}-11"',
    "uuid": lambda chance: f'"{chance.getrandbits(32):08x}-1111-2222-3333-444444444444"',
}

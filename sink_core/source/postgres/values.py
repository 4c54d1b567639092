"""JSON of PostgreSQL's texts: what a type's output function says, as bytes of JSON. Pure.

One conversion for a snapshot, the log and tables by query. Texts are as a session writes them that has `SESSION`, in
UTF-8. Numbers and truth values are those of JSON; `numeric` stays a text, so that no digit is lost, as with Debezium's
`decimal.handling.mode=string`; what has a date is ISO 8601; `bytea` is base64; an array is a list; all else is its
text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping

SESSION: Mapping[str, str] = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "bytea_output": "hex",
    "intervalstyle": "postgres",
    # All digits, of servers before 12 as well.
    "extra_float_digits": "3",
    # A policy makes an error, rather than rows that are not there.
    "row_security": "off",
    # Who may make functions in another schema would else have them called, as whoever asks.
    "search_path": "pg_catalog",
}
"""Settings of a session whose rows and texts are read here, whatever a role or a database sets of its own."""

TYPES = """
SELECT oid::bigint, typelem::bigint, typbasetype::bigint FROM pg_type
WHERE typtype = 'd'
   OR typcategory = 'A' AND typdelim = ',' AND typlen = -1 AND oid NOT IN ('int2vector'::regtype, 'oidvector'::regtype)
"""
"""What `Types.of` takes."""

ToJson = Callable[[bytes], bytes]
"""From a text of PostgreSQL to JSON. Raises UnicodeDecodeError for what is no UTF-8, ValueError for another form than
the type has.
"""

NULL = b"null"

_SPECIAL = re.compile(rb'["\\\x00-\x1f]').search
_NUMBER = re.compile(rb"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?").fullmatch


def quoted(name: str) -> bytes:
    """A name as JSON."""
    return json.dumps(name, ensure_ascii=False).encode()


def text(value: bytes) -> bytes:
    """A JSON text; the database has vouched for UTF-8."""
    if _SPECIAL(value) is None:
        return b'"%b"' % value
    return quoted(value.decode())


def checked_text(value: bytes) -> bytes:
    """As `text`, of a database that has never looked at its bytes (`SQL_ASCII`)."""
    return quoted(value.decode())


def as_is(value: bytes) -> bytes:
    return value


def _truth(value: bytes) -> bytes:
    return b"true" if value == b"t" else b"false"


def _float(value: bytes) -> bytes:
    # NaN and Infinity are no JSON.
    return value if _NUMBER(value) else text(value)


def _bytea(value: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(bytes.fromhex(value[2:].decode()))


def _timestamp(value: bytes) -> bytes:
    # A year before Christ ends in " BC", and stays the text that it is.
    return b'"%b"' % (value if value.endswith(b"C") else value.replace(b" ", b"T", 1))


def _timestamptz(value: bytes) -> bytes:
    return b'"%bZ"' % value[:-3].replace(b" ", b"T", 1) if value.endswith(b"+00") else text(value)


_BY_TYPE: Mapping[int, ToJson] = {
    16: _truth,
    17: _bytea,
    **dict.fromkeys((20, 21, 23, 26), as_is),
    **dict.fromkeys((700, 701), _float),
    1114: _timestamp,
    1184: _timestamptz,
}
"""By the ids of built-in types, which never change (`pg_type.dat`)."""


class Types:
    """How each type becomes JSON. `elements` are element types by array type, `bases` base types by domain."""

    def __init__(self, elements: Mapping[int, int], bases: Mapping[int, int], *, checked: bool = False) -> None:
        self._elements, self._bases = elements, bases
        self._text = checked_text if checked else text

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int]], *, checked: bool) -> Types:
        """From what `TYPES` found; `checked` as in `checked_text`."""
        kinds = list(rows)
        bases = {oid: base for oid, _, base in kinds if base}
        return cls({oid: element for oid, element, base in kinds if not base}, bases, checked=checked)

    def base(self, oid: int) -> int:
        """The type that a domain is made of, in the end."""
        while oid in self._bases:
            oid = self._bases[oid]
        return oid

    def to_json(self, oid: int) -> ToJson:
        """Of the type with this id; one that is not known has its text."""
        oid = self.base(oid)
        element = self._elements.get(oid)
        if element is None:
            return _BY_TYPE.get(oid, self._text)
        convert = self.to_json(element)
        return lambda value: _array(value, convert)


_ITEM = re.compile(rb'"((?:[^"\\]|\\.)*)"|([^{},"\\]+(?:\\.[^{},"\\]*)*)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def _array(value: bytes, convert: ToJson) -> bytes:
    """A list, of lists where it has several dimensions. Bounds other than from 1 are left out."""
    if value.startswith(b"["):
        value = value[value.index(b"=") + 1 :]
    found, at = list[bytes](), 0
    while at < len(value):
        mark = value[at : at + 1]
        if mark == b"{":
            found.append(b"[")
        elif mark == b"}":
            found.append(b"]")
        elif mark == b",":
            found.append(b",")
        else:
            item = _ITEM.match(value, at)
            if item is None:
                raise ValueError(f"not an array: {value!r}")
            quoted, plain = item.groups()
            if quoted is not None:
                found.append(convert(_ESCAPED.sub(rb"\1", quoted)))
            else:
                found.append(NULL if plain.upper() == b"NULL" else convert(plain))
            at = item.end() - 1
        at += 1
    return b"".join(found)

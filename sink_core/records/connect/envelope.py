"""The envelope of Kafka Connect's JsonConverter, `{"schema": …, "payload": …}`, taken apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from calve.sink_core.records.connect.schema import ConnectType
from calve.sink_core.records.decode.python_json import Digits, as_written, no_key_twice

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Envelope:
    """Texts of schema and payload. `prefix` is all before the payload, if after it comes nothing but the end."""

    schema: bytes
    payload: bytes
    prefix: bytes | None


def opened(value: bytes) -> Envelope:
    """The parts of an envelope, in either order. Raises ValueError or RecursionError for what isn't one."""
    text = value.decode()
    spans = dict(_members(text))
    if spans.keys() != {"schema", "payload"}:
        raise ValueError(f"not an envelope of schema and payload: it has {', '.join(sorted(spans)) or 'no members'}")
    (begin, end), schema = spans["payload"], spans["schema"]
    prefix = text[:begin].encode() if text[end:].strip() == "}" else None
    return Envelope(text[slice(*schema)].encode(), text[begin:end].encode(), prefix)


def _members(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Names of an object's members, and from where to where their values stand."""
    at, names = _past(text, _SPACE.match(text, 0), "{"), set[str]()
    while True:
        name, at = _DECODER.raw_decode(text, at)
        if not isinstance(name, str) or name in names:
            raise ValueError("not an envelope of schema and payload: a key is no string, or stands twice")
        names.add(name)
        begin = _past(text, _SPACE.match(text, at), ":")
        _, end = _DECODER.raw_decode(text, begin)
        yield name, (begin, end)
        after = _end(_SPACE.match(text, end))
        if text[after : after + 1] == "}" and not text[after + 1 :].strip(" \t\r\n"):
            return
        at = _past(text, _SPACE.match(text, end), ",")


def _past(text: str, space: re.Match[str] | None, character: str) -> int:
    """Where the next token begins behind the character that is due."""
    at = _end(space)
    if text[at : at + 1] != character:
        raise ValueError(f"not an envelope of schema and payload: no {character} at character {at}")
    return _end(_SPACE.match(text, at + 1))


def _end(space: re.Match[str] | None) -> int:
    return space.end() if space else 0


def plain(payload: bytes, kind: ConnectType) -> bytes:
    """The payload with maps that stand as lists of pairs written as objects.

    Raises ValueError or RecursionError for what isn't JSON or has a key twice.
    """
    decoded = as_written(payload)
    return _text(decoded, kind).encode()


def _text(value: object, kind: ConnectType | None) -> str:
    if isinstance(value, Digits):
        return value
    if isinstance(value, dict):
        return _object(value, kind)
    if isinstance(value, list):
        if kind is not None and kind.kind == "map":
            return _pairs(value, kind)
        return f"[{','.join(_text(item, kind.item if kind else None) for item in value)}]"
    return json.dumps(value)


def _object(members: dict[str, object], kind: ConnectType | None) -> str:
    known = dict(kind.fields) if kind else {}
    every = kind.item if kind and kind.kind == "map" else None
    written = (f"{json.dumps(name)}:{_text(value, known.get(name, every))}" for name, value in members.items())
    return f"{{{','.join(written)}}}"


def _pairs(entries: list[object], kind: ConnectType) -> str:
    members: list[tuple[str, object]] = []
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2 or isinstance(entry[0], list | dict):
            raise ValueError("a map's entry is no pair of a plain key and a value")
        key, is_text = entry[0], isinstance(entry[0], str) and not isinstance(entry[0], Digits)
        if kind.key is not None and kind.key.kind == "string" and not is_text:
            raise ValueError(f"{json.dumps(key)} is no text, which the map's keys are")
        members.append((key if isinstance(key, str) else json.dumps(key), entry[1]))
    return _object(no_key_twice(members), kind)

"""Bytes of messages drawn by chance, as some writer may have written them, or nearly so."""

from __future__ import annotations

import random
import struct

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_F = FieldDescriptor
_TEXTS = ["", "a", "Größe", "\N{GRINNING FACE}" * 5, "glacier " * 9, "f79c3e09-677c-4bbd-a479-3f349cb785e7"]
NO_TEXTS = [b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80"]
NO_TEXTS += [b"\xe2\x82", b"\x80", b"abcdefgh\xc3", b"\xc3a", b"\xf8\x88\x80\x80\x80", b"abcdefg\xed\xbf\xbf"]
NO_TEXTS += [b"\xf5\x80\x80\x80", b"\xe2\x82a", b"\xf0\x9f\x98a"]
"""Bytes that are no UTF-8."""
_BLOBS = [b"", b"ab", b"\0\xff\x80", bytes(range(16)), bytes(200)]
_WHOLE = [0, 1, -1, 2, 5, -3, 7, 127, 128, 300, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63)]
_INT32 = (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32, _F.TYPE_ENUM)
_UINT32 = (_F.TYPE_UINT32, _F.TYPE_FIXED32)
_WORDS = {
    **dict.fromkeys((_F.TYPE_FIXED32, _F.TYPE_SFIXED32, _F.TYPE_FLOAT), 5),
    **dict.fromkeys((_F.TYPE_FIXED64, _F.TYPE_SFIXED64, _F.TYPE_DOUBLE), 1),
}
_DEEPEST = 5


def varint(number: int, longer: int = 0) -> bytes:
    """Of 64 bits, with so many bytes more than there need be."""
    number &= 2**64 - 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    if longer:
        found[-1] |= 0x80
        found += b"\x80" * (longer - 1) + b"\0"
    return bytes(found)


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def any_message(of: Descriptor, chance: random.Random, odd: float, depth: int = 0) -> bytes:
    """A message's fields, most of them there; each is `odd` in some way with that probability."""
    parts = list[bytes]()
    for field in of.fields:
        times = chance.randint(0, 3) if field.is_repeated else int(chance.random() < 0.8)
        times += chance.random() < odd
        if depth == _DEEPEST and field.message_type is not None:
            times = 0
        parts += _written(field, times, chance, odd, depth)
        if chance.random() < odd:
            parts.append(_odd_part(field.number, chance))
    if chance.random() < 0.1:
        chance.shuffle(parts)
    return b"".join(parts)


def _written(field: FieldDescriptor, times: int, chance: random.Random, odd: float, depth: int) -> list[bytes]:
    wire = 2 if field.message_type or field.type in (_F.TYPE_STRING, _F.TYPE_BYTES) else _WORDS.get(field.type, 0)
    values = [_value(field, chance, odd, depth) for _ in range(times)]
    if field.is_repeated and wire != 2 and chance.random() < 0.6:
        return [tag(field.number, 2) + _sized(b"".join(values))] if values or chance.random() < 0.3 else []
    return [tag(field.number, wire) + (_sized(value) if wire == 2 else value) for value in values]


def _sized(value: bytes) -> bytes:
    return varint(len(value)) + value


def _value(field: FieldDescriptor, chance: random.Random, odd: float, depth: int) -> bytes:
    is_odd = chance.random() < odd
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Timestamp" and not is_odd:
            nanos = chance.choice([0, 1000, 999_999_000])
            return b"\x08" + varint(chance.randint(-(10**10), 10**11)) + (b"\x10" + varint(nanos) if nanos else b"")
        return any_message(field.message_type, chance, odd, depth + 1)
    if field.type == _F.TYPE_STRING:
        return chance.choice(NO_TEXTS) if is_odd else chance.choice(_TEXTS).encode()
    if field.type == _F.TYPE_BYTES:
        return chance.choice(_BLOBS)
    if field.type == _F.TYPE_FLOAT:
        return struct.pack("<f", chance.choice([0.0, -0.0, 0.5, 3e38, float("inf")]))
    if field.type == _F.TYPE_DOUBLE:
        return struct.pack("<d", chance.choice([0.0, -0.0, 0.5, 0.1 if is_odd else 2.5, 3e38]))
    return _number(field, chance, is_odd=is_odd)


def _number(field: FieldDescriptor, chance: random.Random, *, is_odd: bool) -> bytes:
    # Most fit narrow columns, too.
    number = chance.choice(_WHOLE if chance.random() < 0.05 or is_odd else _WHOLE[:11])
    if field.type == _F.TYPE_BOOL and not is_odd:
        number &= 1
    if field.type == _F.TYPE_ENUM and not is_odd:
        number = chance.choice([0, 1, 5, -3])
    if field.type in _UINT32 and not is_odd:
        number &= 2**32 - 1
    if field.type in _INT32 and not is_odd:
        number = (number + 2**31) % 2**32 - 2**31
    if field.type in _WORDS:
        size = 4 if _WORDS[field.type] == 5 else 8
        return (number % 2 ** (8 * size)).to_bytes(size, "little")
    if field.type in (_F.TYPE_SINT32, _F.TYPE_SINT64):
        number = (number << 1) ^ (number >> 63)
    return varint(number, chance.randint(1, 9) if is_odd else 0)


def _odd_part(number: int, chance: random.Random) -> bytes:
    """Something of the field with that number, which its schema may not have like that."""
    longer = chance.randint(1, 9)
    return chance.choice(
        [
            tag(number, 0) + varint(chance.choice(_WHOLE)),
            tag(number, 1) + bytes(8),
            tag(number, 2) + _sized(chance.choice([*_BLOBS, *NO_TEXTS, b"\x08\x01"])),
            tag(number, 5) + bytes(4),
            tag(number, 3) + tag(number, chance.choice([0, 4])),
            tag(number, chance.choice([4, 6, 7])),
            tag(999, 0) + b"\x01",
            tag(0, 0) + b"\x01",
            varint(number << 3, longer) + b"\x01",
            varint((number << 3) + 2**32) + b"\x01",
            tag(number, 2) + varint(1, longer) + b"a",
            tag(number, 2) + varint(chance.choice([2**31, 2**62, -1])),
            tag(number, 0) + b"\xff" * 9 + chance.choice([b"\x01", b"\x02", b"\x7f", b"\xff\x01"]),
            tag(number, 2) + b"\x02" + tag(number, 0) + b"\x80",
        ]
    )


def damaged(value: bytes, chance: random.Random) -> bytes:
    """The value with a few bytes cut, or replaced by others."""
    at, removed = chance.randint(0, len(value)), chance.randint(0, 3)
    return value[:at] + chance.randbytes(chance.randint(0, 2)) + value[at + removed :]

"""Records with any timestamp, also those that librdkafka can't send: 0, which it takes for now."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_PRODUCE, _VERSION, _ALL, _TIMEOUT_MS = 0, 3, -1, 30_000
_CRC32C = 0x82F63B78


def produce_at(bootstrap: str, topic: str, records: Sequence[tuple[int, bytes]], partition: int = 0) -> None:
    """Append records, each a timestamp and a value, as one batch."""
    batch = _batch(records)
    body = struct.pack(">hhi", -1, _ALL, _TIMEOUT_MS)
    body += struct.pack(">i", 1) + _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("test") + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            said = answer.read(size)
    # Correlation id, one topic, its name, one partition, its number: then what became of it.
    (error,) = struct.unpack_from(">h", said, 4 + 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, f"error code {error}"


def _batch(records: Sequence[tuple[int, bytes]]) -> bytes:
    first, last = records[0][0], max(moment for moment, _ in records)
    written = b"".join(_record(moment - first, place, value) for place, (moment, value) in enumerate(records))
    no_producer = struct.pack(">qhi", -1, -1, -1)
    head = struct.pack(">hiqq", 0, len(records) - 1, first, last) + no_producer + struct.pack(">i", len(records))
    checked = head + written
    rest = struct.pack(">ibI", 0, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(later_ms: int, place: int, value: bytes) -> bytes:
    # Attributes, time and offset from the first's, no key, the value, no headers.
    own = b"\0" + _varint(later_ms) + _varint(place) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(own)) + own


def _varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC32C if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

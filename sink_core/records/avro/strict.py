"""Whether bytes are a value as Avro's specification has it.

fastavro takes some that are none, and ends the process where values lie too deep within each other. An int may have as
many bits as a long, as it may for whoever reads many records at once.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from calve.sink_core.records.avro.schema import Node, WriterSchema

MOST_NESTED = 1_000
"""Values within each other. fastavro calls itself for each: some thousands more are the end of its stack."""
_PARTS, _PARTS_OF_A_BYTE = 10_000, 16
"""Parts that a value may have, and how many more for each of its bytes. Those of no bytes have no other end."""
_MOST_SHIFT = 63
_SIZES = {"null": 0, "float": 4, "double": 8}
_LONG, _MORE = 2**64, 0x80


def check(data: bytes, at: int, schema: WriterSchema) -> int:
    """The place behind the value of `schema` that begins at a place. Raises ValueError saying why it is none."""
    value, left = _Value(data, at, schema), _PARTS + _PARTS_OF_A_BYTE * len(data)
    # No call of itself: whoever writes says how deep.
    open_values = [iter([schema.root])]
    while open_values:
        left -= 1
        if left < 0:
            raise ValueError(f"{len(data):,} bytes with more than {_PARTS:,} parts, and {_PARTS_OF_A_BYTE} for a byte")
        node = next(open_values[-1], None)
        if node is None:
            open_values.pop()
        elif (parts := value.parts(schema.resolved(node))) is not None:
            open_values.append(parts)
            if len(open_values) > MOST_NESTED:
                raise ValueError(f"more than {MOST_NESTED:,} values within each other")
    return value.at


class _Value:
    """`at` is how far the data have been looked at."""

    def __init__(self, data: bytes, at: int, schema: WriterSchema) -> None:
        self._data, self.at, self._schema = data, at, schema

    def parts(self, node: Node) -> Iterator[Node] | None:
        """What is within a value of a resolved type, each to be looked at before the next; None if that is nothing."""
        if isinstance(node, list):
            return iter([cast(Node, node[self._number_below(len(node), "branches of a union")])])
        kind = node if isinstance(node, str) else str(node["type"])
        if kind in ("int", "long"):
            self._long()
            return None
        if kind in ("string", "bytes"):
            self._bytes(self._long())
            return None
        of = cast(dict[str, Any], node)
        match kind:
            case "record" | "error":
                return iter([field["type"] for field in of["fields"]])
            case "array":
                return self._items(of["items"])
            case "map":
                return self._entries(of["values"])
            case "enum":
                self._number_below(len(of["symbols"]), "symbols of an enum")
            case "boolean":
                if self._bytes(1) not in (b"\0", b"\1"):
                    raise ValueError("a boolean is neither 0 nor 1")
            case _:
                self._bytes(_SIZES[kind] if kind in _SIZES else int(of["size"]))
        return None

    def _items(self, kind: Node) -> Iterator[Node]:
        while number := self._in_block():
            for _ in range(number):
                yield kind

    def _entries(self, kind: Node) -> Iterator[Node]:
        keys = set[bytes]()
        while number := self._in_block():
            for _ in range(number):
                key = self._bytes(self._long())
                if key in keys:
                    raise ValueError(f"a map has the key {key.decode(errors='replace')!r} twice")
                keys.add(key)
                yield kind

    def _in_block(self) -> int:
        """How many items come in the next block, 0 for the end."""
        number = self._long()
        if number < 0:
            # Behind it the block's bytes, for whoever wants to pass it over.
            self._long()
        return abs(number)

    def _number_below(self, most: int, what: str) -> int:
        number = self._long()
        if not 0 <= number < most:
            raise ValueError(f"{number} is none of the {most} {what}")
        return number

    def _long(self) -> int:
        data, at, found, shift = self._data, self.at, 0, 0
        try:
            while (byte := data[at]) >= _MORE and shift <= _MOST_SHIFT:
                found |= (byte - _MORE) << shift
                at, shift = at + 1, shift + 7
        except IndexError:
            raise ValueError("the last number is cut short") from None
        found |= byte << shift
        if found >= _LONG or shift > _MOST_SHIFT:
            raise ValueError("a number has more than 64 bits")
        self.at = at + 1
        return (found >> 1) ^ -(found & 1)

    def _bytes(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self._data):
            raise ValueError(f"{size} bytes are to follow, and {len(self._data) - self.at} are there")
        self.at += size
        return self._data[self.at - size : self.at]

"""A kernel that reads Protobuf messages by a table of their fields, each field into a row of words.

A row belongs to a level: that of the messages, or that of the elements of a repeated field. It has a word for each
message or element, the row's default if nothing else is read.
"""

# Numba has no types that pyright knows.
# pyright: basic

from __future__ import annotations

from calve.sink_core import compiled
from calve.sink_core.memory import load8, load32, load64
from calve.sink_core.texts import is_text

VARINT, ZIGZAG, WORD32, WORD64, ENUM, BYTES, TEXT, MESSAGE = range(8)
"""What a field is. WORD32 has no sign here: whoever reads its row gives it one."""
TAG, KIND, PACKED, ROW, HAS, ONCE, LOW, HIGH, MANY, LEVEL = range(10)
"""Words of a field: its tag and kind, if it is packed, many in one; its row, in which BYTES and TEXT have their
place, and in the next one their size; the row that gets a one where the field is, and the row that must not have one
yet; the least and the greatest number, or size of BYTES. If it is repeated, the row that gets how many elements there
are, and the level of these, of which its own row is then. -1 is for no row and no level.

Of an ENUM, LOW is where its numbers begin among all enums' and HIGH how many these are; the row gets the place among
them. Of a MESSAGE, LOW is its node.
"""
FIRST, LAST, STAMP = range(3)
"""Words of a node, which is a message at its place in another one: its fields; the row of a Timestamp's seconds, which
become microseconds, before that of its nanoseconds, -1 for all else."""
NO_ROOM = -1
"""What `read` returns if there are more elements than was thought."""
FIELD_WORDS, NODE_WORDS, FRAME_WORDS = 10, 3, 4
DEEPEST = 64
"""Messages within messages are read so far."""

_NODE, _END, _OF_LEVEL, _CURSOR = range(4)
_MORE, _BITS = 0x80, 0x7F
_POSITIVE = 0x7FFFFFFFFFFFFFFF
_LAST_SHIFT = 63
# Of tags and sizes, more is an error whatever the number.
_LONGEST = 5
# From the year 1 to the year 9999, as in `types`.
_FIRST_SECOND, _LAST_SECOND, _NANOS = -62_135_596_800, 253_402_300_799, 10**9


@compiled.part
def _varint(data, at, end):
    """The 64 bits at a place, and where they end; beyond the end if they are cut short or too many."""
    number, shift, address = 0, 0, data.ctypes.data
    while at < end and shift <= _LAST_SHIFT:
        byte = load8(address + at)
        at += 1
        number |= (byte & _BITS) << shift
        if byte & _MORE == 0:
            return number, at if shift < _LAST_SHIFT or byte <= 1 else end + 1
        shift += 7
    return 0, end + 1


@compiled.part
def _number(data, at, end, kind, low, high, enums):
    """The number of a kind at a place, and where it ends; beyond the end if it is none of the field."""
    if kind in (WORD32, WORD64):
        size, address = 4 if kind == WORD32 else 8, data.ctypes.data + at
        if end - at < size:
            return 0, end + 1
        number, at = load32(address) if kind == WORD32 else load64(address), at + size
    else:
        number, at = _varint(data, at, end)
    if kind == ENUM:
        if 0 <= number < high and enums[low + number] == number:
            return number, at
        for place in range(high):
            if enums[low + place] == number:
                return place, at
        return 0, end + 1
    if kind == ZIGZAG:
        number = ((number >> 1) & _POSITIVE) ^ -(number & 1)
    return number, at if low <= number <= high else end + 1


@compiled.part
def _find(fields, tag, cursor, first, last):
    """The field of a tag, looked for from `cursor` on, where it nearly always is; -1 if there is none."""
    for k in range(cursor, last):
        if fields[k, TAG] == tag:
            return k
    for k in range(first, cursor):
        if fields[k, TAG] == tag:
            return k
    return -1


@compiled.part
def _stamp(words, base, row, place):
    """Whether seconds and nanoseconds are a time in whole microseconds, which the seconds then become."""
    seconds, nanos = words[base[row] + place], words[base[row + 1] + place]
    words[base[row] + place] = seconds * 1_000_000 + nanos // 1000
    return _FIRST_SECOND <= seconds <= _LAST_SECOND and 0 <= nanos < _NANOS and nanos % 1000 == 0


@compiled.kernel(
    "int64(uint8[::1], int64[::1], int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1])"
)
def read(  # noqa: C901 - one loop, in which a call costs
    data, starts, ends, header, fields, nodes, enums, room, level_of, defaults, base, counts, stack, words, suspect
):
    """How many of the values at `starts` to `ends` of `data` are read, whose messages begin behind a header: the others
    get a one in `suspect`, and leave nothing behind. NO_ROOM if a level has more elements than there is `room` for.

    `level_of` and `defaults` are those of rows, each of which begins at its `base` in `words`: these are its default to
    begin with. `counts` gets how many elements each level has, in the first of its two rows. `stack` is for DEEPEST
    frames.
    """
    for i in range(len(starts)):
        at, end = starts[i] + header, ends[i]
        for level in range(len(room)):
            counts[1, level] = counts[0, level]
        depth, node, level, cursor = 0, 0, 0, nodes[0, FIRST]
        good = at <= end
        while good:
            place = counts[0, level]
            if at == end:
                stamp = nodes[node, STAMP]
                good = stamp < 0 or _stamp(words, base, stamp, place)
                if depth == 0:
                    break
                depth -= 1
                if stack[depth, _OF_LEVEL] != level:
                    counts[0, level] += 1
                node, end = stack[depth, _NODE], stack[depth, _END]
                level, cursor = stack[depth, _OF_LEVEL], stack[depth, _CURSOR]
                continue
            begin = at
            tag, at = _varint(data, at, end)
            cursor = _find(fields, tag, cursor, nodes[node, FIRST], nodes[node, LAST])
            if cursor < 0 or at - begin > _LONGEST:
                good = False
                break
            kind, packed, row = fields[cursor, KIND], fields[cursor, PACKED], fields[cursor, ROW]
            once = fields[cursor, ONCE]
            low, high, inner = fields[cursor, LOW], fields[cursor, HIGH], fields[cursor, LEVEL]
            size = 0
            if kind >= BYTES or packed:
                begin = at
                size, at = _varint(data, at, end)
                if at - begin > _LONGEST or not 0 <= size <= end - at:
                    good = False
                    break
            stop = end
            if packed:
                stop = at + size
                if size == 0:
                    continue
            if once >= 0:
                good = words[base[once] + place] == 0
                words[base[once] + place] = 1
            if fields[cursor, HAS] >= 0:
                words[base[fields[cursor, HAS]] + place] = 1
            while good:
                if inner >= 0:
                    if counts[0, inner] >= room[inner]:
                        return NO_ROOM
                    words[base[fields[cursor, MANY]] + counts[0, level]] += 1
                    place = counts[0, inner]
                if kind == MESSAGE:
                    if depth == len(stack):
                        good = False
                        break
                    stack[depth, _NODE], stack[depth, _END] = node, end
                    stack[depth, _OF_LEVEL], stack[depth, _CURSOR] = level, cursor
                    depth += 1
                    node, end, cursor = low, at + size, nodes[low, FIRST]
                    level = inner if inner >= 0 else level
                    break
                if kind >= BYTES:
                    good = is_text(data, at, at + size) if kind == TEXT else low <= size <= high
                    number, at = at, at + size
                else:
                    number, at = _number(data, at, stop, kind, low, high, enums)
                    good = at <= stop
                if row >= 0:
                    words[base[row] + place] = number
                    if kind >= BYTES:
                        words[base[row + 1] + place] = size
                if inner >= 0:
                    counts[0, inner] += 1
                if not packed or at >= stop:
                    break
        if good:
            counts[0, 0] += 1
        else:
            suspect[i] = 1
            for row in range(len(base)):
                level = level_of[row]
                for place in range(counts[1, level], min(counts[0, level] + 1, room[level])):
                    words[base[row] + place] = defaults[row]
            for level in range(len(room)):
                counts[0, level] = counts[1, level]
    return counts[0, 0]


compiled.kept(__name__)

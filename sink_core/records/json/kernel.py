"""A kernel that reads JSON objects by a table of the fields that are wanted, each into a row of words.

It takes what the parser takes, with the same result, or leaves a record to it: a record is a suspect if anything about
it is unusual, be it right or wrong.
"""

# Numba has no types that pyright knows.
# pyright: basic

from __future__ import annotations

import numpy as np

from calve.sink_core import compiled
from calve.sink_core.memory import copy, load8, load32, load64, zeros_below
from calve.sink_core.records.json.numbers import number
from calve.sink_core.texts import is_text

BOOLEAN, INT, LONG, DOUBLE, TEXT, STRUCT = range(6)
"""What a field is. A row of words gets its value: the bits of a double, or the place of a text and in the next row its
size; places below zero are in `unescaped`, -1 for its first byte."""
NAME, NAME_SIZE, KIND, ROW, VALID, NODE = range(6)
"""Words of a field: where its name is and its size, what it is, its rows of words and of validity, a struct's node."""
FIRST, LAST = range(2)
"""Words of a node, which is the object that a record is, or one of its structs: its fields."""
OTHER_NODE, OTHER_NAME, OTHER_SIZE, OTHER_COUNT, OTHER_RECORD = range(5)
"""Words of a field that no node has: in which node it stood, its name and how many values it has that are not null."""
FIELD_WORDS, NODE_WORDS, OTHER_WORDS = 6, 2, 5
DEEPEST = 60
"""Structs within structs that are read, and objects and lists within what is passed over."""

_OPEN, _CLOSE, _LIST, _LIST_END = b"{}[]"
_QUOTE, _ESCAPE, _COLON, _COMMA = b'"\\:,'
_SPACE, _TAB, _LINE, _RETURN = b" \t\n\r"
_N, _T, _F, _E, _U, _MINUS, _ZERO, _NINE = b"ntfeu-09"
_NAN, _INFINITY = (int.from_bytes(text, "little") for text in (b'NaN"', b"Infinity"))
_NAN_BITS, _INFINITY_BITS, _SIGN = 0x7FF8 << 48, 0x7FF0 << 48, -(2**63)
_NULL, _TRUE, _ALSE = (int.from_bytes(word, "little") for word in (b"null", b"true", b"alse"))
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_WORD = 8
# For eight bytes at a time: which of them are a quote, an escape or less than a blank.
_ONES, _HIGHS = 0x0101010101010101, -0x7F7F7F7F7F7F7F80
_QUOTES, _ESCAPES, _BLANKS = (_ONES * byte for byte in b'"\\ ')
_ESCAPED, _MEANT = (np.frombuffer(text, np.uint8) for text in (b'"\\/bfnrt', b'"\\/\b\f\n\r\t'))


@compiled.part
def _blank(data, at, end):
    """The place behind white space."""
    address = data.ctypes.data
    while at < end:
        byte = load8(address + at)
        # One look for nearly all.
        if byte > _SPACE or byte not in (_SPACE, _LINE, _TAB, _RETURN):
            break
        at += 1
    return at


@compiled.part
def _plain(data, at, end):
    """The place of the first quote, escape or control character; the end if there is none."""
    address = data.ctypes.data
    while at + _WORD <= end:
        word = load64(address + at)
        quotes, escapes = word ^ _QUOTES, word ^ _ESCAPES
        found = (quotes - _ONES) & ~quotes | (escapes - _ONES) & ~escapes | (word - _BLANKS) & ~word
        found &= _HIGHS
        if found != 0:
            return at + (zeros_below(found) >> 3)
        at += _WORD
    while at < end and data[at] != _QUOTE and data[at] != _ESCAPE and data[at] >= _SPACE:
        at += 1
    return at


@compiled.part
def _hex(data, at, end):
    """The number of four hexadecimal digits; -1 if they are none."""
    if at + 4 > end:
        return -1
    found = 0
    for i in range(4):
        byte = data[at + i]
        if _ZERO <= byte <= _NINE:
            found = found << 4 | byte - _ZERO
        elif 97 <= byte | 32 <= 102:
            found = found << 4 | (byte | 32) - 87
        else:
            return -1
    return found


@compiled.part
def _encode(point, into, at):
    """Writes a code point as UTF-8; the place behind it."""
    if point < 0x80:
        into[at] = point
        return at + 1
    if point < 0x800:
        into[at], into[at + 1] = 0xC0 | point >> 6, 0x80 | point & 0x3F
        return at + 2
    if point < 0x10000:
        into[at], into[at + 1], into[at + 2] = 0xE0 | point >> 12, 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
        return at + 3
    into[at], into[at + 1] = 0xF0 | point >> 18, 0x80 | point >> 12 & 0x3F
    into[at + 2], into[at + 3] = 0x80 | point >> 6 & 0x3F, 0x80 | point & 0x3F
    return at + 4


@compiled.part
def _unescape(data, at, end, into, to):
    """The place behind the quote that ends a string, and behind what was written of it to `into`; -1 for a bad one."""
    while at < end:
        stop = _plain(data, at, end)
        if stop >= end or data[stop] < _SPACE:
            return -1, to
        copy(into.ctypes.data + to, data.ctypes.data + at, stop - at)
        to += stop - at
        at = stop + 1
        if data[stop] == _QUOTE:
            return at, to
        if at >= end:
            return -1, to
        byte = data[at]
        at += 1
        if byte == _U:
            point = _hex(data, at, end)
            at += 4
            if 0xD800 <= point < 0xDC00 and at + 6 <= end and data[at] == _ESCAPE and data[at + 1] == _U:
                low = _hex(data, at + 2, end)
                if low < 0xDC00 or low >= 0xE000:
                    return -1, to
                point = 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00
                at += 6
            if point < 0 or 0xD800 <= point < 0xE000:
                return -1, to
            to = _encode(point, into, to)
            continue
        meant = -1
        for i in range(len(_ESCAPED)):
            if _ESCAPED[i] == byte:
                meant = _MEANT[i]
        if meant < 0:
            return -1, to
        into[to] = meant
        to += 1
    return -1, to


@compiled.part
def _same(data, at, names, name, size):
    """Whether the bytes at a place, of which there are so many, are a name's."""
    if at + size + _WORD > len(data) or name + size + _WORD > len(names):
        for i in range(size):  # noqa: SIM110 - a generator is nothing that Numba compiles
            if data[at + i] != names[name + i]:
                return False
        return True
    here, there = data.ctypes.data + at, names.ctypes.data + name
    while size >= _WORD:
        if load64(here) != load64(there):
            return False
        here, there, size = here + _WORD, there + _WORD, size - _WORD
    return size == 0 or (load64(here) ^ load64(there)) << (64 - 8 * size) == 0


@compiled.part
def _literal(data, at, end):
    """The place behind null, true or false; -1 if there is none of them."""
    if at + 4 <= end:
        word = load32(data.ctypes.data + at)
        if word in (_NULL, _TRUE):
            return at + 4
        if at + 5 <= end and data[at] == _F and load32(data.ctypes.data + at + 1) == _ALSE:
            return at + 5
    return -1


@compiled.part
def _not_finite(data, at, end):
    """The bits of the double that a text stands for, and the place behind it; -1 for a text that stands for none."""
    address = data.ctypes.data
    if at + 5 <= end and load32(address + at + 1) == _NAN:
        return _NAN_BITS, at + 5
    minus = at + 1 < end and load8(address + at + 1) == _MINUS
    at += minus
    if at + 10 <= end and load64(address + at + 1) == _INFINITY and load8(address + at + 9) == _QUOTE:
        return _INFINITY_BITS | (_SIGN if minus else 0), at + 10
    return 0, -1


@compiled.part
def _member(data, at, end):
    """The place behind a name and its colon; -1 if there is none."""
    if at >= end or data[at] != _QUOTE:
        return -1
    stop = _plain(data, at + 1, end)
    if stop >= end or data[stop] != _QUOTE:
        # One with escapes is for others.
        return -1
    at = _blank(data, stop + 1, end)
    return at + 1 if at < end and data[at] == _COLON else -1


@compiled.part
def _passed(data, at, end, unescaped, to, powers):  # noqa: C901 - one loop, in which a call costs
    """The place behind a value of any kind, which is looked at strictly; -1 for a bad one."""
    depth, objects = 0, 0
    while True:
        at = _blank(data, at, end)
        if at >= end:
            return -1
        byte = data[at]
        opened = byte in (_OPEN, _LIST)
        if opened:
            if depth == DEEPEST:
                return -1
            objects = objects << 1 | (byte == _OPEN)
            depth += 1
            at = _blank(data, at + 1, end)
            if at >= end:
                return -1
            if data[at] == (_CLOSE if byte == _OPEN else _LIST_END):
                at += 1
                depth -= 1
                objects >>= 1
            else:
                if byte == _OPEN:
                    at = _member(data, at, end)
                    if at < 0:
                        return -1
                continue
        elif byte == _QUOTE:
            stop = _plain(data, at + 1, end)
            if stop < end and data[stop] == _QUOTE:
                at = stop + 1
            else:
                at, _ = _unescape(data, at + 1, end, unescaped, to)
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            _, at, good = number(data, at, end, False, powers)
            if not good:
                return -1
        else:
            at = _literal(data, at, end)
        if at < 0:
            return -1
        while depth > 0:
            at = _blank(data, at, end)
            if at >= end:
                return -1
            byte, within = data[at], objects & 1
            at += 1
            if byte == _COMMA:
                if within:
                    at = _member(data, _blank(data, at, end), end)
                    if at < 0:
                        return -1
                break
            if byte != (_CLOSE if within else _LIST_END):
                return -1
            depth -= 1
            objects >>= 1
        if depth == 0:
            return at


@compiled.part
def _note(data, name, size, node, record, others):
    """Counts a value of a field that the node lacks; false if there is no room, or the record has it twice."""
    for k in range(len(others)):
        if others[k, OTHER_COUNT] == 0:
            others[k, OTHER_NODE], others[k, OTHER_NAME], others[k, OTHER_SIZE] = node, name, size
        else:
            if others[k, OTHER_NODE] != node or others[k, OTHER_SIZE] != size:
                continue
            if not _same(data, name, data, others[k, OTHER_NAME], size):
                continue
            if others[k, OTHER_RECORD] == record:
                return False
        others[k, OTHER_COUNT] += 1
        others[k, OTHER_RECORD] = record
        return True
    return False


@compiled.kernel(
    "int64(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64[::1],"
    " int64[:, ::1], uint8[:, ::1], uint8[::1], int64[::1], int64[:, ::1], uint8[::1])"
)
def read(  # noqa: C901 - one loop, in which a call costs
    data, starts, ends, names, fields, nodes, powers, words, valid, unescaped, stamps, others, suspect
):
    """How many values at `starts` to `ends` of `data` are suspects, which get a one: they leave what they left.

    The others are read into `words`, with ones in `valid` where there is a value. `unescaped` is as long as `data`,
    `stamps` have a word for each field, and `others` get what no field is. All but `data` begin as zeros.
    """
    # Where others have most of the data, each value is looked at.
    all_text = 2 * (ends - starts).sum() > len(data) and is_text(data, 0, len(data))
    number_of, to, address = 0, 0, data.ctypes.data
    stack = np.zeros(DEEPEST, np.int64)
    for i in range(len(starts)):
        at, end, record = _blank(data, starts[i], ends[i]), ends[i], i + 1
        good = at < end and load8(address + at) == _OPEN and (all_text or is_text(data, at, end))
        at += 1
        depth, node, cursor, fresh = 0, 0, nodes[0, FIRST], True
        while good:
            at = _blank(data, at, end)
            good = at < end
            if not good:
                break
            if load8(address + at) == _CLOSE:
                at += 1
                if depth == 0:
                    good = _blank(data, at, end) == end
                    break
                depth -= 1
                cursor = stack[depth] >> 32
                node, fresh = stack[depth] & 0xFFFFFFFF, False
                continue
            if not fresh:
                good = load8(address + at) == _COMMA
                at = _blank(data, at + 1, end)
            fresh = False
            good = good and at < end and load8(address + at) == _QUOTE
            if not good:
                break
            at += 1
            name, last, field = at, nodes[node, LAST], -1
            # Nearly always it is the next one.
            if cursor < last:
                size = fields[cursor, NAME_SIZE]
                ends_there = at + size < end and load8(address + at + size) == _QUOTE
                if ends_there and _same(data, at, names, fields[cursor, NAME], size):
                    field = cursor
                    at += size
            if field < 0:
                at = _plain(data, at, end)
                good = at < end and load8(address + at) == _QUOTE
                size = at - name
                for k in range(nodes[node, FIRST], last):
                    if fields[k, NAME_SIZE] == size and _same(data, name, names, fields[k, NAME], size):
                        field = k
                        break
            at = _blank(data, at + 1, end)
            good = good and at < end and load8(address + at) == _COLON
            at = _blank(data, at + 1, end)
            good = good and at < end
            if not good:
                break
            byte = load8(address + at)
            if field < 0:
                if byte != _N:
                    good = _note(data, name, size, node, record, others)
                at = _passed(data, at, end, unescaped, to, powers)
                good = good and at >= 0
                continue
            good = stamps[field] != record
            stamps[field] = record
            cursor = field + 1
            if byte == _N:
                good = good and at + 4 <= end and load32(address + at) == _NULL
                at += 4
                continue
            kind, row = fields[field, KIND], fields[field, ROW]
            if kind == TEXT:
                good = good and byte == _QUOTE
                at += 1
                stop = _plain(data, at, end)
                if stop < end and load8(address + stop) == _QUOTE:
                    words[row, i], words[row + 1, i] = at, stop - at
                    at = stop + 1
                else:
                    at, behind = _unescape(data, at, end, unescaped, to)
                    words[row, i], words[row + 1, i] = -1 - to, behind - to
                    to = behind
                    good = good and at >= 0
            elif kind == STRUCT:
                good = good and byte == _OPEN and depth < DEEPEST
                if good:
                    at += 1
                    stack[depth] = cursor << 32 | node
                    depth += 1
                    node, fresh = fields[field, NODE], True
                    cursor = nodes[node, FIRST]
            elif kind == BOOLEAN:
                words[row, i] = byte == _T
                at = _literal(data, at, end)
                good = good and at >= 0
            elif kind == DOUBLE and byte == _QUOTE:
                words[row, i], at = _not_finite(data, at, end)
                good = good and at >= 0
            else:
                found, at, fine = number(data, at, end, kind != DOUBLE, powers)
                words[row, i] = found
                good = good and fine and (kind != INT or _INT_MIN <= found <= _INT_MAX)
            valid[fields[field, VALID], i] = 1
        if not good:
            suspect[i] = 1
            number_of += 1
            for k in range(len(others)):
                others[k, OTHER_COUNT] -= others[k, OTHER_RECORD] == record
    return number_of


@compiled.kernel("void(uint8[::1], uint8[::1], int64[::1], int64[::1], uint8[::1])")
def gather(data, unescaped, starts, offsets, found):
    """Fills `found` with the texts at `starts`, one behind the other, up to `offsets` of each."""
    plain, other, target = data.ctypes.data, unescaped.ctypes.data, found.ctypes.data
    for i in range(len(starts)):
        start, offset = starts[i], offsets[i]
        source = plain + start if start >= 0 else other - 1 - start
        copy(target + offset, source, offsets[i + 1] - offset)


compiled.kept(__name__)

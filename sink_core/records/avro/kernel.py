"""A kernel that reads Avro records of one schema, which is a program: a step for each field, one after the other."""

# Numba has no types that pyright knows.
# pyright: basic

from __future__ import annotations

from calve.sink_core import compiled
from calve.sink_core.memory import load8, load32, load64

# What a step reads. From WHOLE on it begins with a number in zigzag.
BOOLEAN, NUMBER, FIXED, WHOLE, BYTES, ENUM, UNION = range(7)
STEP_WORDS = 6
"""Of a step: what it reads, the row of words and the row of validity (-1 for none), its number (bytes of what has no
number before it, symbols of an enum, branches of a union), a union's branch that is a value, and the steps to leave out
where there is none; -1 if a value makes its record a suspect."""

_MORE, _BITS = 0x80, 0x7F
_POSITIVE = 0x7FFFFFFFFFFFFFFF
# Up to nine bytes of seven bits; a tenth one would hold the 64th bit.
_LAST_SHIFT = 56
_LONG = 8


@compiled.part
def _zigzag(data, at, end):
    """The number at a place, and where it ends; beyond the end if it is cut short or too long."""
    number, shift, address = 0, 0, data.ctypes.data
    while at < end and shift <= _LAST_SHIFT:
        byte = load8(address + at)
        at += 1
        number |= (byte & _BITS) << shift
        if byte & _MORE == 0:
            return ((number >> 1) & _POSITIVE) ^ -(number & 1), at
        shift += 7
    return 0, end + 1


@compiled.kernel(
    "void(uint8[::1], int64[::1], int64[::1], int64, int64[:, ::1], int64[:, ::1], uint8[:, ::1], uint8[::1])"
)
def read(data, starts, ends, header, steps, words, valid, suspect):  # noqa: C901 - one loop, in which a call costs
    """Reads the values at `starts` to `ends` of `data`, whose records begin behind a header, into a row of `words` for
    each step, two for BYTES: where they start and their length. `valid` is all ones, and gets zeros where a union holds
    null; `suspect` gets ones for records that are not for this reader.
    """
    address = data.ctypes.data
    for i in range(len(starts)):
        at, end = starts[i] + header, ends[i]
        k, good = 0, at <= end
        while good and k < len(steps):
            kind, row, size = steps[k, 0], steps[k, 1], steps[k, 3]
            number = 0
            if kind >= WHOLE:
                number, at = _zigzag(data, at, end)
                size = number if kind == BYTES else 0
            good = 0 <= size <= end - at
            if not good:
                break
            if kind == UNION:
                good = 0 <= number < steps[k, 3]
                if number != steps[k, 4]:
                    if steps[k, 2] >= 0:
                        valid[steps[k, 2], i] = 0
                    k += max(steps[k, 5], 0)
                elif steps[k, 5] < 0:
                    good = False
            elif kind == ENUM:
                good = 0 <= number < steps[k, 3]
            elif kind == BOOLEAN:
                number = load8(address + at)
                good = number <= 1
            elif kind == NUMBER:
                number = load64(address + at) if size == _LONG else load32(address + at)
            if row >= 0:
                if kind in (BYTES, FIXED):
                    words[row, i], words[row + 1, i] = at, size
                else:
                    words[row, i] = number
            at += size
            k += 1
        suspect[i] = not good or at != end


compiled.kept(__name__)

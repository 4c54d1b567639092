"""Kernels for numbers as JSON writes them: whole ones, and the double that is nearest to any other."""

# Numba has no types that pyright knows.
# pyright: basic

from __future__ import annotations

import numpy as np

from calve.sink_core import compiled
from calve.sink_core.memory import high_product, load8, zeros_above

MOST_DIGITS = 19
"""Digits whose number fits 64 bits."""

_MINUS, _PLUS, _POINT, _ZERO, _NINE = b"-+.09"
_LOWER_E, _UPPER_E = b"eE"
_SIGN = -(2**63)
_SMALLEST, _LARGEST = -342, 308
# Of a double: the bits of its mantissa, and what is added to its exponent.
_MANTISSA, _BIAS, _INFINITE = 52, 1023, 0x7FF
_UNSURE = 0x1FF
# Powers of ten at which the product may lie exactly between two doubles.
_TIES_FROM, _TIES_TO = -4, 23
_MOST_EXPONENT = 10_000
"""From here on it is not counted, and others read the number."""


def powers_of_five() -> np.ndarray:
    """The upper 128 bits of five to each power from -342 to 308, two words for each, the upper one first.

    As "Number Parsing at a Gigabyte per Second" (Lemire, 2021) has them: rounded up below one, down from one on.
    """
    words = list[int]()
    for power in range(_SMALLEST, _LARGEST + 1):
        if power < 0:
            of = 5**-power
            bits = (of - 1).bit_length()
            found = (1 << (2 * bits + 128)) // of + 1 if power < -27 else (1 << (bits + 127)) // of + 1
        else:
            found = 5**power << 128
        found >>= max(0, found.bit_length() - 128)
        words += [found >> 64, found & (2**64 - 1)]
    return np.array(words, np.uint64).view(np.int64)


@compiled.part
def _below(one, other):
    """Whether a word without sign is less than another."""
    return (one ^ _SIGN) < (other ^ _SIGN)


@compiled.part
def nearest(mantissa, power, powers):
    """The bits of the double nearest to `mantissa`, which has no sign, by ten to `power`; false if it is none of those
    that have all their bits, or infinite.
    """
    if mantissa == 0:
        return 0, True
    if power < _SMALLEST or power > _LARGEST:
        return 0, False
    above = zeros_above(mantissa)
    mantissa <<= above
    place = 2 * (power - _SMALLEST)
    high, low = high_product(mantissa, powers[place]), mantissa * powers[place]
    if high & _UNSURE == _UNSURE:
        more = high_product(mantissa, powers[place + 1])
        low += more
        if _below(low, more):
            high += 1
    upper = (high >> 63) & 1
    shift = upper + 64 - _MANTISSA - 3
    found = (high >> shift) & ((1 << (64 - shift)) - 1)
    exponent = ((217706 * power) >> 16) + 63 + upper - above + _BIAS
    if 0 <= low <= 1 and _TIES_FROM <= power <= _TIES_TO and found & 3 == 1 and found << shift == high:
        found &= ~1
    found = (found + (found & 1)) >> 1
    if found >= 2 << _MANTISSA:
        found = 1 << _MANTISSA
        exponent += 1
    if exponent <= 0 or exponent >= _INFINITE:
        return 0, False
    return (found & ~(1 << _MANTISSA)) | (exponent << _MANTISSA), True


@compiled.part
def number(data, at, end, whole, powers):  # noqa: C901 - one look at each byte
    """The number at a place, the bits of a double unless it is to be `whole`; where it ends; and false if it isn't
    JSON's, or not one that is read here: one with fraction or exponent that is to be whole, or with too many digits.
    """
    address = data.ctypes.data
    negative = at < end and load8(address + at) == _MINUS
    at += negative
    begin, found, digits = at, 0, 0
    while at < end and _ZERO <= load8(address + at) <= _NINE:
        found = found * 10 + (load8(address + at) - _ZERO)
        at += 1
    digits = at - begin
    if digits == 0 or (digits > 1 and load8(address + begin) == _ZERO) or digits > MOST_DIGITS:
        return 0, at, False
    # Zeros at the beginning are no digits of the number.
    begun = found != 0
    digits -= not begun
    power = 0
    if whole:
        if at < end and load8(address + at) in (_POINT, _LOWER_E, _UPPER_E):
            return 0, at, False
        # Of 19 digits the number may need all of the bits.
        if found < 0 and not (negative and found == _SIGN):
            return 0, at, False
        return -found if negative else found, at, True
    if at < end and load8(address + at) == _POINT:
        at += 1
        fraction = at
        while at < end and _ZERO <= load8(address + at) <= _NINE:
            found = found * 10 + (load8(address + at) - _ZERO)
            # Of twenty digits the number, cut to 64 bits, may be zero.
            begun = begun or found != 0
            digits += begun
            at += 1
        power = fraction - at
        if power == 0 or digits > MOST_DIGITS:
            return 0, at, False
    if at < end and load8(address + at) in (_LOWER_E, _UPPER_E):
        at += 1
        minus = at < end and load8(address + at) == _MINUS
        if at < end and load8(address + at) in (_MINUS, _PLUS):
            at += 1
        begin, exponent = at, 0
        while at < end and _ZERO <= load8(address + at) <= _NINE:
            exponent = min(exponent * 10 + (load8(address + at) - _ZERO), _MOST_EXPONENT)
            at += 1
        if at == begin or exponent == _MOST_EXPONENT:
            return 0, at, False
        power += -exponent if minus else exponent
    bits, good = nearest(found, power, powers)
    return bits | (_SIGN if negative else 0), at, good

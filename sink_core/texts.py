"""Kernels for texts within the bytes of records, which all formats have."""

# Numba has no types that pyright knows.
# pyright: basic

from __future__ import annotations

from calve.sink_core import compiled
from calve.sink_core.memory import copy, load64

_WORD = 8
# The highest bit of each byte.
_NOT_ASCII = -0x7F7F7F7F7F7F7F80


@compiled.part
def is_text(data, at, end):
    """Whether the bytes at `at` to `end` are UTF-8, strictly."""
    address = data.ctypes.data
    while at < end:
        if end - at >= _WORD and load64(address + at) & _NOT_ASCII == 0:
            at += _WORD
            continue
        first = data[at]
        at += 1
        if first < 0x80:
            continue
        follow = 1 if 0xC2 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF5 else 0
        if follow == 0 or end - at < follow:
            return False
        second = data[at]
        # No longer than need be, no surrogates, nothing beyond the last code point.
        low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
        high = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for i in range(1, follow):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += follow
    return True


@compiled.kernel("void(uint8[::1], int64[::1], int64[::1], uint8[::1])")
def gather(data, starts, offsets, found):
    """Fills `found` with the bytes that begin at `starts` of `data`, one behind the other, up to `offsets` of each."""
    source, target = data.ctypes.data, found.ctypes.data
    for i in range(len(starts)):
        copy(target + offsets[i], source + starts[i], offsets[i + 1] - offsets[i])

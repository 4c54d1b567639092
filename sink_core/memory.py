"""What kernels do with addresses: intrinsics, which are written in the compiler's own terms."""

# Numba has no types that pyright knows, and gives an intrinsic one argument less than it is written with.
# pyright: basic

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _loader(bits):
    @intrinsic
    def load(_context, _address):
        def generate(_context, builder, _signature, arguments):
            found = builder.load(
                builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()), typ=ir.IntType(bits), align=1
            )
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.int64(types.int64), generate

    return load


load64: Any = _loader(64)
load32: Any = _loader(32)
load8: Any = _loader(8)
"""The bits at an address. A byte of an array costs less so than as `data[at]`, which may be counted from the end."""


@intrinsic
def _copy(_context, _target, _source, _size):
    def generate(context, builder, _signature, arguments):
        byte = ir.IntType(8).as_pointer()
        target, source = builder.inttoptr(arguments[0], byte), builder.inttoptr(arguments[1], byte)
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


copy: Any = _copy
"""Copies to an address from another so many bytes."""


def _unary(name):
    @intrinsic
    def function(_context, _word):
        def generate(_context, builder, _signature, arguments):
            return getattr(builder, name)(arguments[0], ir.IntType(1)(0))

        return types.int64(types.int64), generate

    return function


zeros_above: Any = _unary("ctlz")
zeros_below: Any = _unary("cttz")
"""How many bits of a word are zero before the highest one, and behind the lowest one."""


@intrinsic
def _high_product(_context, _one, _other):
    def generate(_context, builder, _signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.int64(types.int64, types.int64), generate


high_product: Any = _high_product
"""The upper 64 bits of the product of two words without sign."""

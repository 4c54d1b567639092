"""What kernels do with addresses. Numba has no names for it, and an intrinsic is written in the compiler's own terms."""

# Numba gives an intrinsic one argument less than it is written with.
# pyright: basic, reportCallIssue=false

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _loader(bits):
    @intrinsic
    def load(_context, _address):
        def generate(_context, builder, _signature, arguments):
            found = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()), typ=ir.IntType(bits))
            return builder.zext(found, ir.IntType(64)) if bits < 64 else found

        return types.int64(types.int64), generate

    return load


load64, load32, load8 = _loader(64), _loader(32), _loader(8)


@intrinsic
def copy(_context, _target, _source, _size):
    def generate(context, builder, _signature, arguments):
        byte = ir.IntType(8).as_pointer()
        target, source = builder.inttoptr(arguments[0], byte), builder.inttoptr(arguments[1], byte)
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate

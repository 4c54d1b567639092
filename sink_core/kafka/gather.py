"""Kernels that take librdkafka's messages apart: from an array of pointers to columns, no object for any record."""

# Numba has no types that pyright knows, and gives an intrinsic one argument less than it is written with.
# pyright: basic, reportCallIssue=false

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from calve.sink_core import compiled
from calve.sink_core.memory import copy, load8, load32, load64

# Of rd_kafka_message_t, which begins with an int of the error.
TOPIC, PARTITION, VALUE, VALUE_BYTES, KEY, KEY_BYTES, OFFSET = 8, 16, 24, 32, 40, 48, 56


def _caller(number):
    """A C function at an address called with `number` words; what it returns is one, whose upper half may be noise."""
    word = ir.IntType(64)

    def generate(_context, builder, _signature, arguments):
        kind = ir.FunctionType(word, [word] * number)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    signature = types.int64(*[types.int64] * (number + 1))
    return signature, generate


@intrinsic
def _call1(_context, _function, _a):
    return _caller(1)


@intrinsic
def _call2(_context, _function, _a, _b):
    return _caller(2)


@intrinsic
def _call5(_context, _function, _a, _b, _c, _d, _e):
    return _caller(5)


# Rows of what `gather` fills, one column for each record; a start of -1 stands for null.
OFFSETS, TOPICS, PARTITIONS, TIMES, TIME_TYPES, VALUE_STARTS, VALUE_ENDS, KEY_STARTS, KEY_ENDS, HEADERS = range(10)
# Rows of what it fills with one column for each header.
NAME_STARTS, NAME_ENDS, HEADER_STARTS, HEADER_ENDS = range(4)

_NEWLINE = 10
_TEXT_END = 0
_HALF = 0xFFFFFFFF
# Places in the array of functions, as `librdkafka.addresses` gives them.
_DESTROY, _TIMESTAMP, _HEADERS_OF, _COUNT_OF, _HEADER_AT = range(5)


@compiled.part
def _text_bytes(address):
    """The length of a C string."""
    end = address
    while load8(end) != _TEXT_END:
        end += 1
    return end - address


@compiled.kernel("void(int64[::1], int64, int64[::1], int64[::1], int64[::1])")
def measure(messages, count, functions, scratch, totals):
    """Into `totals`: records, bytes of their values, bytes of keys, headers' names and values, headers.

    `messages` are addresses, `scratch` is for four words.
    """
    totals[:] = 0
    at = scratch.ctypes.data
    for i in range(count):
        message = messages[i]
        if load32(message) != 0:
            continue
        totals[0] += 1
        totals[1] += load64(message + VALUE_BYTES)
        totals[2] += load64(message + KEY_BYTES)
        if _call2(functions[_HEADERS_OF], message, at) & _HALF == 0:
            headers = scratch[0]
            number = _call1(functions[_COUNT_OF], headers)
            totals[3] += number
            for k in range(number):
                _call5(functions[_HEADER_AT], headers, k, at + 8, at + 16, at + 24)
                totals[2] += _text_bytes(scratch[1]) + scratch[3]


@compiled.kernel(
    "int64(int64[::1], int64, int64[::1], int64[::1], uint8[::1], uint8[::1], int64[:, ::1], int64[:, ::1])"
)
def gather(messages, count, functions, scratch, values, rest, records, headers):
    """How many messages are no records. These stay in `messages`; all others are destroyed, and their addresses zero.

    Fills `values` with the records' values, a newline behind each, `rest` with keys and headers, and `records` and
    `headers` with what is where. All are as large as `measure` says.
    """
    at, value_at, rest_at = scratch.ctypes.data, 0, 0
    row = header = events = 0
    for i in range(count):
        message = messages[i]
        if load32(message) != 0:
            events += 1
            continue
        records[OFFSETS, row] = load64(message + OFFSET)
        records[TOPICS, row] = load64(message + TOPIC)
        records[PARTITIONS, row] = load32(message + PARTITION)
        records[TIMES, row] = _call2(functions[_TIMESTAMP], message, at)
        records[TIME_TYPES, row] = scratch[0] & _HALF
        value, size = load64(message + VALUE), load64(message + VALUE_BYTES)
        if value != 0:
            records[VALUE_STARTS, row] = value_at
            copy(values.ctypes.data + value_at, value, size)
            value_at += size
            records[VALUE_ENDS, row] = value_at
            values[value_at] = _NEWLINE
            value_at += 1
        else:
            records[VALUE_STARTS, row] = records[VALUE_ENDS, row] = -1
        key, size = load64(message + KEY), load64(message + KEY_BYTES)
        if key != 0:
            records[KEY_STARTS, row] = rest_at
            copy(rest.ctypes.data + rest_at, key, size)
            rest_at += size
            records[KEY_ENDS, row] = rest_at
        else:
            records[KEY_STARTS, row] = records[KEY_ENDS, row] = -1
        if headers.shape[1] > 0 and _call2(functions[_HEADERS_OF], message, at) & _HALF == 0:
            found = scratch[0]
            for k in range(_call1(functions[_COUNT_OF], found)):
                _call5(functions[_HEADER_AT], found, k, at + 8, at + 16, at + 24)
                name, size = scratch[1], _text_bytes(scratch[1])
                headers[NAME_STARTS, header] = rest_at
                copy(rest.ctypes.data + rest_at, name, size)
                rest_at += size
                headers[NAME_ENDS, header] = rest_at
                given, size = scratch[2], scratch[3]
                if given != 0:
                    headers[HEADER_STARTS, header] = rest_at
                    copy(rest.ctypes.data + rest_at, given, size)
                    rest_at += size
                    headers[HEADER_ENDS, header] = rest_at
                else:
                    headers[HEADER_STARTS, header] = headers[HEADER_ENDS, header] = -1
                header += 1
        records[HEADERS, row] = header
        row += 1
        messages[i] = 0
        _call1(functions[_DESTROY], message)
    return events


@compiled.kernel("void(int64[::1], int64[::1])")
def destroy(messages, functions):
    """Destroy all messages whose addresses are not zero, which they are then."""
    for i in range(len(messages)):
        if messages[i] != 0:
            message, messages[i] = messages[i], 0
            _call1(functions[_DESTROY], message)


compiled.kept(__name__)

"""A record whose header names are any bytes: what clients in other languages can write, and Python's refuses to."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import confluent_kafka

_PRODUCER, _COPY, _NO_ERROR = 0, 2, 0
# Tags of `rd_kafka_producev`'s arguments in librdkafka's rdkafka.h.
_END, _TOPIC, _PARTITION, _VALUE, _MSGFLAGS, _HEADER = 0, 1, 3, 4, 7, 9
_FLUSH_MS = 60_000


def produce_with_headers(bootstrap: str, topic: str, value: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Append a record to partition 0. Names can't hold NUL."""
    library, error = _librdkafka(), ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), error, len(error))
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, error, len(error)))
    assert producer, error.value
    arguments: list[object] = [producer, _TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0), _MSGFLAGS, _COPY]
    arguments += [_VALUE, value, ctypes.c_size_t(len(value))]
    for name, content in headers:
        arguments += [_HEADER, name, content, ctypes.c_ssize_t(len(content))]
    assert library.rd_kafka_producev(*arguments, _END) == _NO_ERROR
    assert library.rd_kafka_flush(producer, _FLUSH_MS) == _NO_ERROR
    library.rd_kafka_destroy(producer)


@cache
def _librdkafka() -> ctypes.CDLL:
    """The library that confluent-kafka's wheel brings along."""
    [path] = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
    library = ctypes.CDLL(str(path))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_new.restype = ctypes.c_void_p
    return library

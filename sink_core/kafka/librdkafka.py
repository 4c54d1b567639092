"""librdkafka's own functions, of the very library that confluent_kafka has loaded: what `gather` reads messages by.

All names here are of its documented C API (rdkafka.h) and of the layout of `rd_kafka_message_t`, which its ABI keeps;
`tests/unit/kafka/test_librdkafka.py` says if they go. What can't be opened is no error: records are then read by
confluent_kafka, as objects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p, cast
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from calve.sink_core.kafka.compat import FATAL, INVALID_ARG

_TEXT_BYTES = 512
_OK = 0
_CONSUMER = 1
_NO_ERROR = 0

OnError = Callable[[KafkaError], None]
OnLog = Callable[[int, str], None]
_ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
_LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)


class _Partition(Structure):
    """`rd_kafka_topic_partition_t`, as far as it is written here."""

    _fields_ = (("topic", c_char_p), ("partition", c_int32), ("offset", c_int64))


class _List(Structure):
    """`rd_kafka_topic_partition_list_t`."""


class _Message(Structure):
    """`rd_kafka_message_t`; the kernels of `gather` know its places too."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


@cache
def lacks() -> str | None:
    """Why librdkafka can't be called; None if it can."""
    try:
        _Library()
    except (OSError, AttributeError, TypeError) as error:
        return f"librdkafka of confluent_kafka can't be called: {error}"
    return None


class _Library:
    """The functions. Raises OSError or AttributeError for what is not there."""

    def __init__(self) -> None:
        # Its dependencies' names are found as well, wherever the build at hand keeps librdkafka.
        self._opened = ctypes.CDLL(cimpl.__file__)
        partitions, message = POINTER(_List), POINTER(_Message)
        self.conf_new = self._named("rd_kafka_conf_new", c_void_p)
        self.conf_set = self._named("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
        self.conf_destroy = self._named("rd_kafka_conf_destroy", None, c_void_p)
        self.on_error = self._named("rd_kafka_conf_set_error_cb", None, c_void_p, _ErrorCallback)
        self.on_log = self._named("rd_kafka_conf_set_log_cb", None, c_void_p, _LogCallback)
        self.log_queue = self._named("rd_kafka_set_log_queue", c_int, c_void_p, c_void_p)
        self.new = self._named("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
        self.last_error = self._named("rd_kafka_last_error", c_int)
        self.poll_set_consumer = self._named("rd_kafka_poll_set_consumer", c_int, c_void_p)
        self.list_new = self._named("rd_kafka_topic_partition_list_new", partitions, c_int)
        self.list_add = self._named(
            "rd_kafka_topic_partition_list_add", POINTER(_Partition), partitions, c_char_p, c_int32
        )
        self.list_destroy = self._named("rd_kafka_topic_partition_list_destroy", None, partitions)
        self.assign = self._named("rd_kafka_assign", c_int, c_void_p, partitions)
        self.pause = self._named("rd_kafka_pause_partitions", c_int, c_void_p, partitions)
        self.queue_of = self._named("rd_kafka_queue_get_consumer", c_void_p, c_void_p)
        self.queue_destroy = self._named("rd_kafka_queue_destroy", None, c_void_p)
        self.consume = self._named("rd_kafka_consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
        self.error_text = self._named("rd_kafka_message_errstr", c_char_p, message)
        self.fatal_error = self._named("rd_kafka_fatal_error", c_int, c_void_p, c_char_p, c_size_t)
        self.topic_name = self._named("rd_kafka_topic_name", c_char_p, c_void_p)
        self.close = self._named("rd_kafka_consumer_close", c_int, c_void_p)
        self.destroy = self._named("rd_kafka_destroy", None, c_void_p)
        self.addresses = tuple(
            cast(getattr(self._opened, name), c_void_p).value or 0
            for name in (
                "rd_kafka_message_destroy",
                "rd_kafka_message_timestamp",
                "rd_kafka_message_headers",
                "rd_kafka_header_cnt",
                "rd_kafka_header_get_all",
            )
        )

    def _named(self, name: str, result: Any, *arguments: Any) -> Any:
        found = getattr(self._opened, name)
        # A function of its own: what others make of the same name stays as it is.
        return ctypes.CFUNCTYPE(result, *arguments)(cast(found, c_void_p).value or 0)


@cache
def _library() -> _Library:
    return _Library()


def addresses() -> tuple[int, ...]:
    """Where the functions are that the kernels of `gather` call, in the order of its `Functions`."""
    return _library().addresses


class Event:
    """A message that is no record: an error of the client or of a partition, or a partition's end."""

    __slots__ = ("error", "offset", "partition", "topic")

    def __init__(self, error: KafkaError, topic: str | None, partition: int, offset: int) -> None:
        self.error, self.topic, self.partition, self.offset = error, topic, partition, offset


class Consumer:
    """A consumer of partitions that it is assigned. `settings` are librdkafka's, resolved.

    `on_error` and `on_log` are called within `consume`. Raises KafkaException for settings that librdkafka refuses.
    """

    def __init__(self, settings: Mapping[str, object], *, on_error: OnError, on_log: OnLog) -> None:
        self._lib = lib = _library()
        self._handle = self._queue = None

        def error(handle: int, code: int, reason: bytes, _: int) -> None:
            on_error(_client_error(lib, handle, code, reason))

        def log(_: int, level: int, facility: bytes, text: bytes) -> None:
            on_log(level, f"{_shown(facility)} {_shown(text)}")

        # They must live as long as the client.
        self._callbacks = _ErrorCallback(error), _LogCallback(log)
        self._open({**settings, "log.queue": True})

    def _open(self, settings: Mapping[str, object]) -> None:
        lib, text = self._lib, ctypes.create_string_buffer(_TEXT_BYTES)
        conf = lib.conf_new()
        for name, value in settings.items():
            if lib.conf_set(conf, name.encode(), _as_text(value).encode(), text, _TEXT_BYTES) != _OK:
                lib.conf_destroy(conf)
                raise KafkaException(KafkaError(INVALID_ARG, _shown(text.value)))
        lib.on_error(conf, self._callbacks[0])
        lib.on_log(conf, self._callbacks[1])
        # Takes over the configuration if it succeeds.
        self._handle = lib.new(_CONSUMER, conf, text, _TEXT_BYTES)
        if not self._handle:
            lib.conf_destroy(conf)
            raise KafkaException(KafkaError(lib.last_error(), f"Failed to create consumer: {_shown(text.value)}"))
        lib.log_queue(self._handle, None)
        lib.poll_set_consumer(self._handle)
        self._queue = lib.queue_of(self._handle)

    def assign(self, starts: Iterable[tuple[str, int, int]]) -> None:
        """Read these partitions, each by its topic, its number and the offset that is next."""
        self._with_list(starts, self._lib.assign)

    def pause(self, topic: str, partition: int) -> None:
        """Deliver no more of a partition."""
        self._with_list([(topic, partition, 0)], self._lib.pause)

    def _with_list(self, parts: Iterable[tuple[str, int, int]], call: Callable[[Any, Any], int]) -> None:
        parts = list(parts)
        found = self._lib.list_new(len(parts))
        try:
            for topic, partition, offset in parts:
                self._lib.list_add(found, topic.encode(), partition).contents.offset = offset
            code = call(self._handle, found)
        finally:
            self._lib.list_destroy(found)
        if code != _NO_ERROR:
            raise KafkaException(KafkaError(code))

    def consume(self, into: int, most: int, timeout_s: float) -> int:
        """How many messages are in the array at the address `into` now, `most` at most. They are the caller's.

        Waits for `most`, up to `timeout_s`.
        """
        found = self._lib.consume(self._queue, round(timeout_s * 1000), into, most)
        return max(0, int(found))

    def event(self, message: int) -> Event:
        """What the message at an address says."""
        found = cast(message, POINTER(_Message))
        of = found.contents
        error = KafkaError(of.err, _shown(self._lib.error_text(found)))
        topic = _shown(self._lib.topic_name(of.topic)) if of.topic else None
        return Event(error, topic, int(of.partition), int(of.offset))

    def topic(self, address: int) -> str:
        """The name of a topic that a message points to."""
        return _shown(self._lib.topic_name(address))

    def close(self) -> None:
        """Disconnect. All messages must have been destroyed: else this waits for them for ever."""
        if self._handle:
            self._lib.close(self._handle)
            self._lib.queue_destroy(self._queue)
            self._lib.destroy(self._handle)
            self._handle = self._queue = None


def _client_error(lib: _Library, handle: int, code: int, reason: bytes) -> KafkaError:
    if code != FATAL:
        return KafkaError(code, _shown(reason))
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    return KafkaError(lib.fatal_error(handle, text, _TEXT_BYTES), _shown(text.value), fatal=True)


def _as_text(value: object) -> str:
    """As librdkafka reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(text: bytes | None) -> str:
    return (text or b"").decode(errors="replace")

"""librdkafka's own functions are there, in the library that confluent_kafka uses, and refuse what it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from calve.sink_core.kafka import clients, librdkafka

WRONG = {"group.id": "g", "no.such.setting": "1"}


def opened(settings: dict[str, Any]) -> librdkafka.Consumer:
    return librdkafka.Consumer(settings, on_error=lambda _: None, on_log=lambda *_: None)


def test_all_functions_are_found() -> None:
    assert librdkafka.lacks() is None
    assert all(librdkafka.addresses())


def test_what_a_reader_sets_is_taken() -> None:
    settings = clients.reader_settings({"bootstrap.servers": "127.0.0.1:1"}, group="g")
    consumer = opened(settings)
    consumer.close()
    consumer.close()


@pytest.mark.parametrize("settings", [WRONG, {"group.id": "g", "security.protocol": "sasl_ssl", "sasl.mechanism": "?"}])
def test_a_setting_is_refused_in_the_words_of_the_client(settings: dict[str, Any]) -> None:
    with pytest.raises(KafkaException) as expected:
        Consumer(settings)
    with pytest.raises(KafkaException, match=re.escape(expected.value.args[0].str())) as raised:
        opened(settings)
    error: KafkaError = raised.value.args[0]
    assert error.code() == expected.value.args[0].code()

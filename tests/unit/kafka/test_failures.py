"""Every error of Kafka and librdkafka becomes one of Calve's, with a way out."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError, Fenced, RetriableError, Unreachable
from calve.sink_core.kafka.failures import classify, reported
from tests.codes import raises

CODES = sorted(
    code
    for name, code in vars(KafkaError).items()
    if name.strip("_").isupper() and isinstance(code, int) and code != KafkaError.NO_ERROR
)


def test_librdkafka_names_its_codes() -> None:
    assert len(CODES) > 150


@pytest.mark.parametrize("code", CODES)
def test_every_code_says_what_was_done_which_error_came_and_what_to_do(code: int) -> None:
    cause = KafkaError(code)
    error = classify(KafkaException(cause), "reading the end offset of flights[3]")
    assert type(error) is not CalveError
    assert error.message.startswith(f"reading the end offset of flights[3]: {cause.name()}")
    assert error.hint


@pytest.mark.parametrize(
    ("code", "kind", "told", "named"),
    [
        (KafkaError._TRANSPORT, Unreachable, Code.NO_BROKER, ["bootstrap.servers"]),
        (KafkaError._TIMED_OUT, Unreachable, Code.NO_BROKER, ["bootstrap.servers"]),
        (KafkaError._AUTHENTICATION, Unreachable, Code.LOG_IN, ["sasl.password"]),
        (KafkaError._SSL, Unreachable, Code.LOG_IN, ["ssl.ca.location"]),
        (KafkaError.LEADER_NOT_AVAILABLE, Unreachable, Code.BROKERS_BUSY, []),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ConfigError, Code.NO_SUCH_TOPIC, []),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError, Code.NOT_GRANTED, ["ACL"]),
        (KafkaError._INVALID_ARG, ConfigError, Code.KAFKA_SETTING, ["connections.yaml"]),
        (KafkaError._FENCED, Fenced, Code.FENCED, []),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced, Code.FENCED, []),
        (KafkaError.CONCURRENT_TRANSACTIONS, RetriableError, Code.RETRIABLE, []),
        (KafkaError.INVALID_REPLICATION_FACTOR, RetriableError, Code.TOO_FEW_BROKERS, ["replication_factor"]),
        (KafkaError._CRIT_SYS_RESOURCE, RetriableError, Code.NO_ROOM, []),
        (KafkaError.UNKNOWN, RetriableError, Code.UNKNOWN_KAFKA_ERROR, []),
        (KafkaError._STATE, RetriableError, Code.UNKNOWN_KAFKA_ERROR, []),
    ],
)
def test_the_kind_decides_about_retrying_and_the_hint_names_the_setting(
    code: int, kind: type[CalveError], told: Code, named: list[str]
) -> None:
    error = classify(KafkaError(code), "reading")
    assert (type(error), error.code) == (kind, told)
    assert all(setting in error.hint for setting in named)


def test_a_block_reports_what_it_was_doing_and_keeps_the_cause() -> None:
    cause = KafkaException(KafkaError(KafkaError._TRANSPORT))
    with (
        raises(Code.NO_BROKER, "_TRANSPORT") as raised,
        reported("describing the cluster"),
    ):
        raise cause
    assert raised.value.__cause__ is cause


def test_a_time_out_of_the_block_is_unreachable() -> None:
    with raises(Code.NO_BROKER, "reading", "_TIMED_OUT"), reported("reading"):
        raise TimeoutError


def test_other_errors_pass_through_a_block() -> None:
    with pytest.raises(KeyError), reported("reading"):
        raise KeyError("mine")


@pytest.mark.parametrize("code", CODES)
def test_no_answer_of_a_cluster_waits_for_somebody_to_resume(code: int) -> None:
    assert not classify(KafkaError(code), "reading").waits_for_answer


def test_an_exception_without_a_kafka_error_may_pass() -> None:
    assert type(classify(KafkaException("odd"), "reading")) is RetriableError

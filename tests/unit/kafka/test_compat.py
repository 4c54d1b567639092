"""Names that confluent_kafka keeps to itself are there, and mean what librdkafka says."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, admin

from calve.sink_core.kafka import compat

CODES = {
    "ALL_BROKERS_DOWN": -187,
    "AUTHENTICATION": -169,
    "AUTO_OFFSET_RESET": -140,
    "FATAL": -150,
    "INVALID_ARG": -186,
    "NOENT": -156,
    "PARTITION_EOF": -191,
    "SSL": -181,
    "TIMED_OUT": -185,
    "TRANSPORT": -195,
}
ADMINS = ("AclOperation", "ConfigResource", "DescribeClusterResult", "NewTopic", "OffsetSpec", "ResourceType")


@pytest.mark.parametrize("name", sorted(CODES))
def test_an_error_of_the_client_has_its_code(name: str) -> None:
    assert hasattr(KafkaError, f"_{name}"), f"confluent_kafka has no KafkaError._{name} any more"
    assert getattr(compat, name) == CODES[name], f"KafkaError._{name} is another error now"
    assert KafkaError(CODES[name]).name() == f"_{name}"


@pytest.mark.parametrize("name", ADMINS)
def test_what_is_not_exported_is_there(name: str) -> None:
    assert hasattr(admin, name), f"confluent_kafka.admin has no {name} any more"
    assert getattr(compat, name) is getattr(admin, name)

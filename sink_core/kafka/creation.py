"""Topics that are made where they are missing; who finds that another was faster takes what is there."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from calve.sink_core.errors import CalveError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import NewPartitions, NewTopic
from calve.sink_core.kafka.failures import answered, reported, said


def config_text(value: object) -> str:
    """A value of a topic's configuration as Kafka has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def create_missing(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create the topics that are not there. Brokers may not know of one for a moment.

    Raises ConfigError for what the cluster refuses, Unreachable if it does not answer.
    """
    for name, future in admin.create_topics(list(topics), request_timeout=ADMIN_TIMEOUT_S).items() if topics else ():
        try:
            answered(future, f"creating topic {name}", ADMIN_TIMEOUT_S)
        except CalveError as error:
            if not said(error, KafkaError.TOPIC_ALREADY_EXISTS):
                raise


def add_partitions(admin: AdminClient, wanted: Sequence[NewPartitions]) -> None:
    """Give topics more partitions, up to a number; those that have as many stay. Raises as `create_missing`."""
    with reported("adding partitions"):
        futures = admin.create_partitions(list(wanted), request_timeout=ADMIN_TIMEOUT_S)
    for topic, future in futures.items():
        try:
            answered(future, f"adding partitions to topic {topic}", ADMIN_TIMEOUT_S)
        except CalveError as error:
            if not said(error, KafkaError.INVALID_PARTITIONS):
                raise

"""Topics that are made where they are missing; who finds that another was faster takes what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from calve.sink_core.errors import CalveError, Unreachable
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import NewPartitions, NewTopic
from calve.sink_core.kafka.failures import answered, reported, said


def config_text(value: object) -> str:
    """A value of a topic's configuration as Kafka has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def create_missing(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create the topics that are not there. Brokers may not know of one for a moment.

    Raises what the cluster refuses it for, Unreachable if it does not answer.
    """
    for error in create_each(admin, topics).values():
        try:
            raise error
        finally:
            # An error that its own traceback leads to is a cycle, and keeps the client with it.
            del error


def create_each(admin: AdminClient, topics: Sequence[NewTopic]) -> dict[str, CalveError]:
    """As `create_missing`; the errors, by topic, of those that the cluster refuses."""
    futures = admin.create_topics(list(topics), request_timeout=ADMIN_TIMEOUT_S) if topics else {}
    return refused(futures, "creating topic", KafkaError.TOPIC_ALREADY_EXISTS)


def add_partitions(admin: AdminClient, wanted: Sequence[NewPartitions]) -> dict[str, CalveError]:
    """Give topics more partitions, up to a number; those that have as many stay. As `create_each`."""
    with reported("adding partitions"):
        futures = admin.create_partitions(list(wanted), request_timeout=ADMIN_TIMEOUT_S)
    return refused(futures, "adding partitions to topic", KafkaError.INVALID_PARTITIONS)


def refused(futures: Mapping[str, Future[Any]], doing: str, *harmless: int) -> dict[str, CalveError]:
    """The errors that brokers answered, by topic, but for those of `harmless` codes. Raises Unreachable."""
    found: dict[str, CalveError] = {}
    for topic, future in futures.items():
        try:
            answered(future, f"{doing} {topic}", ADMIN_TIMEOUT_S)
        except Unreachable:
            raise
        except CalveError as error:
            if not said(error, *harmless):
                found[topic] = error.with_traceback(None)
    return found

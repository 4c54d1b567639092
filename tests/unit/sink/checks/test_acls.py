"""The commands that grant what a pipeline needs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from calve.sink_core.config.connections import Connections
from calve.sink_core.config.sink import SinkConfig
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.sink.checks.acls import kafka_acls_lines

OPTIONS = ("--topic", "--group", "--transactional-id")


def pipeline(letters: str | None = None, **kafka: str) -> SinkPipeline:
    connections = {
        "deployment": "prod",
        "kafka": {"main": {"bootstrap.servers": "b:9092", **kafka}},
        "catalog": {"lake": {"type": "sql"}},
    }
    config = {
        "name": "flights",
        "source": {"kafka": "main", "topics": ["flights", "delays"]},
        "catalog": "lake",
        "tables": [{"name": "air.flights"}],
        "dead_letters": {"topic": letters},
    }
    return SinkPipeline.of(SinkConfig.model_validate(config), Connections.model_validate(connections), Path("p.yaml"))


def test_every_resource_of_the_pipeline_is_granted_under_its_own_name() -> None:
    granted = [shlex.split(line) for line in kafka_acls_lines(pipeline())]
    resources = {tuple(words[words.index(option) :][:2]) for words in granted for option in words if option in OPTIONS}
    assert resources == {
        ("--topic", "flights"),
        ("--topic", "delays"),
        ("--topic", "calve.prod.flights.control"),
        ("--group", "calve.prod.flights"),
        ("--group", "calve-"),
        ("--transactional-id", "calve.prod.flights."),
    }


def test_only_the_control_topic_is_written_to() -> None:
    written = [line for line in kafka_acls_lines(pipeline()) if "--operation Write" in line and "--topic" in line]
    assert len(written) == 1
    assert "--topic calve.prod.flights.control" in written[0]


def test_the_topic_of_dead_letters_is_written_to_and_never_read() -> None:
    more = set(kafka_acls_lines(pipeline("letters"))) - set(kafka_acls_lines(pipeline()))
    assert [line.partition("--operation ")[2] for line in more] == [
        "Write --operation Describe --operation DescribeConfigs --topic letters"
    ]


@pytest.mark.parametrize(
    ("username", "principal"),
    [("alice b", "User:alice b"), ("${ENV:NAME}", "User:PRINCIPAL"), (None, "User:PRINCIPAL")],
)
def test_the_principal_is_named_where_it_is_known(username: str | None, principal: str) -> None:
    settings = {"sasl.username": username} if username else {}
    assert principal in shlex.split(kafka_acls_lines(pipeline(**settings))[0])

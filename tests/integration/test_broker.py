"""The embedded broker: found, stopped, restarted, and a real Kafka."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from calve.orchestration.local import broker as embedded
from calve.sink_core.codes import Code
from tests import support
from tests.codes import raises
from tests.integration.conftest import StartBroker

START = """
import sys
from pathlib import Path
from calve.orchestration.local import broker
print(broker.start(Path(sys.argv[1]), heap_mb=512).pid)
"""


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every living process that was started with a file of `directory`."""
    return [p for p in psutil.process_iter(["cmdline"]) if any(str(directory) in a for a in p.info["cmdline"] or [])]


def test_two_starts_at_the_same_moment_give_one_broker(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    command = [sys.executable, "-c", START, str(directory)]
    with support.short_lived():
        starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        pids = {starter.communicate(timeout=120)[0].strip() for starter in starters}
        running = embedded.status(directory)
        assert running is not None
        assert pids == {str(running.pid)}
        assert embedded.start(directory) == running
        with raises(Code.RUNS_OTHERWISE, running.port):
            embedded.start(directory, port=embedded.free_port())
    finally:
        assert embedded.stop(directory)


def test_stop_leaves_nothing_running(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert embedded.stop(broker.directory)
    assert embedded.status(broker.directory) is None
    assert processes_of(broker.directory) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((embedded.HOST, broker.port), timeout=5)
    assert not embedded.stop(broker.directory)


def test_stop_of_a_broker_that_never_was(tmp_path: Path) -> None:
    assert not embedded.stop(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_restart_after_a_kill_keeps_data_and_port(start_broker: StartBroker) -> None:
    first = start_broker()
    support.create_topic(first.bootstrap, "kept")
    support.produce(first.bootstrap, "kept", ["a", "b"])
    psutil.Process(first.pid).send_signal(signal.SIGKILL)
    psutil.Process(first.pid).wait(30)

    second = start_broker()
    assert second.port == first.port
    assert second.pid != first.pid
    assert support.consume(second.bootstrap, "kept") == [b"a", b"b"]


def test_a_recycled_pid_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    mine = {"pid": os.getpid(), "created": 1.0, "port": 9092}
    (tmp_path / "broker.json").write_text(json.dumps(mine))
    assert embedded.status(tmp_path) is None
    assert not embedded.stop(tmp_path)


def test_records_of_an_aborted_transaction_are_hidden(
    broker: embedded.Broker, kafka_topic: support.TopicFactory
) -> None:
    topic = kafka_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": support.unique("tx")})
    producer.init_transactions(30)
    for value, finish in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        finish(30)
    assert support.consume(broker.bootstrap, topic) == [b"committed"]
    assert support.consume(broker.bootstrap, topic, isolation="read_uncommitted") == [b"aborted", b"committed"]


def test_old_events_are_kept(
    broker: embedded.Broker, kafka_topic: support.TopicFactory, produce: support.Produce
) -> None:
    topic = kafka_topic()
    produce(topic, ["from 2013"], timestamps=[1_357_000_000_000])
    assert support.consume(broker.bootstrap, topic) == [b"from 2013"]
    assert support.topic_config(broker.bootstrap, topic)["retention.ms"] == "-1"


def test_topics_are_not_made_by_asking_for_them(broker: embedded.Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "allow.auto.create.topics": True})
    assert admin.list_topics("misspelt", timeout=30).topics["misspelt"].error is not None
    assert "misspelt" not in admin.list_topics(timeout=30).topics


@pytest.mark.parametrize(
    ("properties", "code", "values"),
    [
        ({"log.segment.bytes": "many"}, Code.BROKER_STORAGE, ("log.segment.bytes", "many")),
        ({"metric.reporters": "no.such.Reporter"}, Code.NOT_STARTED, ("no.such.Reporter",)),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, properties: dict[str, str], code: str, values: tuple[str, ...]
) -> None:
    with raises(code, *values):
        embedded.start(tmp_path / "broker", properties=properties)
    assert processes_of(tmp_path) == []


def test_a_port_that_is_taken_is_refused(start_broker: StartBroker) -> None:
    with socket.create_server((embedded.HOST, 0)) as other:
        port = other.getsockname()[1]
        with raises(Code.PORT_TAKEN, port):
            start_broker(port=port)


def test_an_added_listener_asks_for_the_password(start_broker: StartBroker) -> None:
    port = embedded.free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker = start_broker(
        properties={
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_calve="r\\"ight";',
        }
    )
    client = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "calve",
        "log_level": 0,
    }
    topics = AdminClient({**client, "sasl.password": 'r"ight'}).list_topics(timeout=30)
    assert topics.cluster_id
    with pytest.raises(KafkaException):
        AdminClient({**client, "sasl.password": "wrong"}).list_topics(timeout=5)
    assert stat.S_IMODE((broker.directory / "server.properties").stat().st_mode) == 0o600

"""No Kafka client is left to Python's search for cycles: a process has room for a thousand, and it comes late."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import EXIT_DONE, FindingError
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import NewTopic
from calve.sink_core.kafka.creation import create_missing
from calve.sink_core.mirror.state import MIRROR
from tests import support
from tests.codes import finding
from tests.launch import calve
from tests.mirrors import mirror
from tests.pipelines import Flow
from tests.support import TopicFactory


def alive() -> int:
    return sum(isinstance(thing, (Producer, Consumer, AdminClient)) for thing in gc.get_objects())


@contextmanager
def none_left() -> Generator[None]:
    gc.collect()
    gc.disable()
    try:
        before = alive()
        yield
        assert alive() == before
    finally:
        gc.enable()


def foreign_log(bootstrap: str) -> str:
    topic = support.create_topic(bootstrap, f"calve.others.{support.unique('x').replace('.', '-')}.control", 1)
    support.produce(bootstrap, topic, ["not an event"])
    return topic


def test_by_the_commands_of_a_mirror(broker: Broker, other_broker: Broker, tmp_path: Path) -> None:
    topic = support.create_topic(broker.bootstrap, support.unique("orders"), 2)
    support.produce(broker.bootstrap, topic, ["a"] * 10)
    foreign_log(broker.bootstrap)
    copied = mirror(broker, other_broker, tmp_path, [topic])
    with none_left():
        for command in ("check", "run", "status", "plan", "verify", "check"):
            assert calve(command, copied.file).returncode == EXIT_DONE
    with none_left():
        assert calve("positions", "set", copied.file, f"{topic}/0:5", "--yes").returncode != EXIT_DONE


def test_by_the_commands_of_a_sink(broker: Broker, kafka_topic: TopicFactory, tmp_path: Path) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(2))
    flow.produce(range(10))
    file = flow.pipeline.path
    # The first to open a catalog makes its tables, after an error of SQLAlchemy's that is part of a cycle.
    assert calve("run", file).returncode == EXIT_DONE
    flow.produce(range(10, 20))
    with none_left():
        for command in ("run", "status", "plan", "verify"):
            assert calve(command, file).returncode == EXIT_DONE, command


def test_by_a_control_log_that_stops_at_what_others_wrote(broker: Broker) -> None:
    topic, found = foreign_log(broker.bootstrap), finding("foreign-events").code
    with none_left():
        settings = {"bootstrap.servers": broker.bootstrap}
        with closing(ControlLog(settings, topic, MIRROR, admin=clients.admin(settings))) as log:
            log.open(create=False)
            # Not by `raises` of tests/codes.py, whose frame the error would keep, and with it the log's clients.
            with pytest.raises(FindingError, match=found):
                log.refresh()
        assert not log.whole
        with pytest.raises(FindingError, match=found):
            log.require_whole()
        del log


def test_by_an_answer_that_is_an_error(broker: Broker) -> None:
    with none_left():
        admin = clients.admin({"bootstrap.servers": broker.bootstrap})
        wanted = NewTopic("no such name !", 1)
        with suppress(Exception):
            create_missing(admin, [wanted])
        del admin, wanted

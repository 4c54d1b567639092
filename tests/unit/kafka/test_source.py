"""What an answer without an offset is taken for; a cluster gives one only while a leader dies."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from calve.sink_core.codes import Code
from calve.sink_core.kafka.source import Silent, end_offsets
from calve.sink_core.offsets import TopicPartition
from tests.codes import raises, says

AT = TopicPartition("t", 0)


@dataclass
class Election:
    """Gives these offsets, one each time it is asked."""

    offsets: list[int]

    def list_offsets(self, wanted: dict[KafkaPartition, object], **_: object) -> dict[KafkaPartition, Future[Any]]:
        offset, future = self.offsets.pop(0), Future[Any]()
        future.set_result(ListOffsetsResultInfo(offset, -1, -1))
        return dict.fromkeys(wanted, future)

    def list_topics(self, **_: object) -> None:
        """Looks for the leaders again."""


@dataclass
class Leaderless(Election):
    """Has no leader for the partitions in `without`; counts how often each was asked for."""

    without: set[TopicPartition]
    asked: Counter[TopicPartition] = field(default_factory=Counter[TopicPartition])

    def list_offsets(self, wanted: dict[KafkaPartition, object], **_: object) -> dict[KafkaPartition, Future[Any]]:
        partitions = [TopicPartition(p.topic, p.partition) for p in wanted]
        self.asked.update(partitions)
        futures = {p: Future[Any]() for p in wanted}
        for at, future in zip(partitions, futures.values(), strict=True):
            if at in self.without:
                future.set_exception(KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)))
            else:
                future.set_result(ListOffsetsResultInfo(7, -1, -1))
        return futures


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


def asked(*offsets: int) -> dict[TopicPartition, int]:
    return end_offsets(cast(AdminClient, Election(list(offsets))), [AT], timeout_s=1.0)


def test_an_answer_without_an_offset_is_asked_for_again() -> None:
    assert asked(OFFSET_INVALID, OFFSET_INVALID, 7) == {AT: 7}


def test_an_answer_that_never_holds_an_offset_is_no_end_offset() -> None:
    with raises(Code.BROKERS_BUSY, "t[0]", "LEADER_NOT_AVAILABLE"):
        asked(*[OFFSET_INVALID] * 5)


OTHER = TopicPartition("t", 1)


def test_a_partition_without_a_leader_is_waited_for_once_and_hides_no_other() -> None:
    admin, silent = Leaderless([], {AT}), Silent()
    for tries in (5, 1):
        silent = silent.again()
        assert end_offsets(cast(AdminClient, admin), [AT, OTHER], timeout_s=1.0, silent=silent) == {OTHER: 7}
        says(str(silent.by_name["t[0]"]), Code.BROKERS_BUSY)
        assert (admin.asked.pop(AT), admin.asked.pop(OTHER)) == (tries, 1)
        assert end_offsets(cast(AdminClient, admin), [AT, OTHER], timeout_s=1.0, silent=silent) == {OTHER: 7}
        assert admin.asked == {OTHER: 1}, "within one look it is asked for once"
        admin.asked.clear()
    admin.without.clear()
    silent = silent.again()
    assert end_offsets(cast(AdminClient, admin), [AT, OTHER], timeout_s=1.0, silent=silent) == {AT: 7, OTHER: 7}
    assert silent.by_name == {}


def test_where_nothing_answers_its_error_is_raised() -> None:
    with raises(Code.BROKERS_BUSY, "t[0]"):
        end_offsets(cast(AdminClient, Leaderless([], {AT, OTHER})), [AT, OTHER], timeout_s=1.0, silent=Silent())

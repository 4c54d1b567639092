"""What an answer without an offset is taken for; a cluster gives one only while a leader dies."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo

from calve.sink_core.error_codes.kafka import BROKERS_BUSY
from calve.sink_core.kafka.source import end_offsets
from calve.sink_core.offsets import TopicPartition
from tests.codes import raises

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


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


def asked(*offsets: int) -> dict[TopicPartition, int]:
    return end_offsets(cast(AdminClient, Election(list(offsets))), [AT], timeout_s=1.0)


def test_an_answer_without_an_offset_is_asked_for_again() -> None:
    assert asked(OFFSET_INVALID, OFFSET_INVALID, 7) == {AT: 7}


def test_an_answer_that_never_holds_an_offset_is_no_end_offset() -> None:
    with raises(BROKERS_BUSY, "t[0]", "LEADER_NOT_AVAILABLE"):
        asked(*[OFFSET_INVALID] * 5)

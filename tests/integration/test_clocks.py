"""A batch has the broker's time as its instant: a clock that is wrong for a minute is over with that minute."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.control.events import BatchAbandoned
from calve.sink_core.errors import Unreachable
from calve.sink_core.sink.loop import announcing
from calve.sink_core.sink.loop.announcing import Announced, announce
from calve.sink_core.tables.log.events import StartCommit
from tests.codes import raises
from tests.pipelines import COLUMNS, Flow
from tests.support import TopicFactory

DAY_S = 86_400


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> Flow:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    table = {"name": flow.table, "format": "hudi", "auto_create": {"columns": COLUMNS}}
    return flow.but(extra={"tables": [table], "hudi": {"warehouse": str(tmp_path / "hudi")}})


def announced(flow: Flow, monkeypatch: pytest.MonkeyPatch, ahead_s: float) -> Announced:
    """By a host whose clock is so far ahead of the broker's."""
    clock = SimpleNamespace(time_ns=lambda: time.time_ns() + round(ahead_s * 1e9))
    monkeypatch.setattr(announcing, "time", clock)
    with flow.session() as session:
        session.bind()
        return announce(session, "b1", "b0", "batch")


@pytest.mark.parametrize("ahead_s", [DAY_S, 0.0, -30.0])
def test_an_instant_is_the_broker_s_time_whatever_the_host_s_clock_says(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    made = announced(flow, monkeypatch, ahead_s)
    assert 0 <= made.instant_ms - made.broker_time_ms < 4
    assert not flow.events(BatchAbandoned)


def test_a_broker_whose_clock_is_far_ahead_gives_none_to_tables_that_have_a_timeline(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises(Code.CLOCKS_APART, of=Unreachable):
        announced(flow, monkeypatch, -DAY_S)
    [started], [given_up] = flow.events(StartCommit), flow.events(BatchAbandoned)
    assert started.batch_id == given_up.batch_id
    # Nothing of it is left: the next one, by clocks that agree, has its own time.
    made = announced(flow, monkeypatch, 0.0)
    assert 0 <= made.instant_ms - made.broker_time_ms < 4
    announced(flow.but(extra={}), monkeypatch, -DAY_S)

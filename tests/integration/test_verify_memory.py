"""What a proof holds of each batch: a log and a ledger of 100,000 are looked at by a process like any other."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.batches import publish
from calve.orchestration.local.broker import Broker
from calve.sink_core import packed_values
from calve.sink_core.sink.verify.proof import verify
from tests.pipelines import Flow
from tests.support import TopicFactory

FEW, MANY = 200, 800
BYTES_OF_A_BATCH = 3_000
"""Two data files with their paths, two events, and four sums of counts; 100,000 batches then take 300 MB. The metrics
of the files alone are 8,000 bytes, the events as they are 4,000.
"""


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> Flow:
    # Of so few batches all would be at hand.
    monkeypatch.setattr(packed_values, "BLOCK", 32)
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(1))
    flow.run()
    flow.produce(range(1, MANY))
    return flow


def fed(flow: Flow, start: int, end: int) -> None:
    with flow.session() as session:
        session.bind()
        publish(session, flow.table, start, end)
        session.coordinator().commit(after_publish=True).raise_failures()


@contextmanager
def traced() -> Generator[None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def peak_of_a_proof(flow: Flow) -> int:
    """Bytes that each proof holds: what is read once and kept is no batch's, nor is what another thread holds."""
    return min(_peak(flow) for _ in range(2))


def _peak(flow: Flow) -> int:
    with traced(), flow.session() as session:
        report = verify(session, deep=True)
        _, peak = tracemalloc.get_traced_memory()
    assert report.proven, report.violations
    return peak


def test_a_proof_holds_little_of_each_batch(flow: Flow) -> None:
    fed(flow, 1, FEW)
    of_few = peak_of_a_proof(flow)
    fed(flow, FEW, MANY)
    of_many = peak_of_a_proof(flow)
    assert (of_many - of_few) / (MANY - FEW) < BYTES_OF_A_BATCH

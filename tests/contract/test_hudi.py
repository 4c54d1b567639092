"""A Hudi table takes a batch in one instant, beside an Iceberg table of the same records."""

from __future__ import annotations

from pathlib import Path

from calve.orchestration.local.broker import Broker
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_tables
from tests.hudi_tables import NAMES
from tests.support import TopicFactory


def test_a_batch_is_one_instant(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(100))
    flow.run()
    folder = hudi_tables.place(flow, NAMES[1]).folder
    assert hudi_tables.ids(folder) == flow.ids() == list(range(100))
    assert set(hudi_tables.completions(folder).values()) == {1}
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()

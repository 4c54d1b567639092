"""Maintenance of a Hudi table whose rows change: log files are compacted, small files clustered, and no row differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.hudi.files.timeline import read_timeline
from calve.sink_core.hudi.table.shape import DATA_FILES, LOG_FILES
from tests import hudi_spark
from tests.hudi_tables import place
from tests.integration.test_hudi_changes import TABLE, UPSERT, changed, found, proven, send
from tests.integration.test_hudi_maintenance import maintain
from tests.pipelines import Died, reached
from tests.support import Produce, TopicFactory

pytestmark = pytest.mark.usefixtures("hudi_at_hand")

SERVICES = ("clustering", "replacecommit", "compaction")


@pytest.mark.faults
def test_no_row_differs_after_it_and_changes_go_on(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    settings = {**UPSERT, "hudi": {"type": "merge_on_read"}}
    compact = {"compact": {"min_files": 2, "lag": 0}}
    flow = changed(tmp_path, broker.bootstrap, kafka_topic(1), settings, maintenance=compact)
    kept: dict[int, str] = {}

    def change(text: str, *ids: int) -> None:
        kept.update(dict.fromkeys(ids, text))
        send(flow, produce, *({"id": n, "text": text} for n in ids))
        flow.run()

    def by_spark() -> dict[int, str]:
        [rows] = hudi_spark.rows(place(flow, TABLE).folder)
        return {row["id"]: row["text"] for row in rows}

    def die() -> None:
        raise Died

    change("first", *range(10))
    # Changes alone go into a log file, and new rows then into a file of their own.
    change("second", *range(5))
    change("first", *range(10, 20))
    with pytest.raises(Died), reached("hudi.after-plan", die):
        maintain(flow, "compact", TABLE)
    assert read_timeline(place(flow, TABLE)).pending(SERVICES)
    change("third", 3, 4, 10, 11, 30)
    assert by_spark() == kept

    outcome = maintain(flow, "compact", TABLE)
    assert outcome.before[LOG_FILES]
    assert not outcome.after[LOG_FILES]
    assert outcome.before[DATA_FILES] > outcome.after[DATA_FILES] == 1
    # Without log files hudi-rs reads it.
    assert by_spark() == dict(found(flow, TABLE, "id", "text")) == kept

    change("fourth", *range(0, 40, 3))
    assert by_spark() == kept
    assert not read_timeline(place(flow, TABLE)).pending(SERVICES)
    assert proven(flow)

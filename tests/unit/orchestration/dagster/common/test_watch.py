"""What the sensor sees in the ends of the source's partitions and in the control log."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from calve.orchestration.dagster.common import watch
from calve.orchestration.dagster.common.trigger import Sight
from calve.orchestration.dagster.sink.watch import SinkWatch
from calve.sink_core.codes import Code
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.events import Event, Paused, Resolved, Resumed
from calve.sink_core.detached import free_port
from calve.sink_core.errors import Unreachable
from tests.codes import names, raises
from tests.documents import ROOT
from tests.pipelines import Flow
from tests.unit.tables.log.build import PIPELINE_ID, TOPIC, at, bound, complete, log, written

PUBLISHED = replace(complete("b1", {TOPIC: (10, 20)}), written_at_ms=5_500)
PAUSED = Paused(pipeline_id=PIPELINE_ID, by="ann", reason="upgrade")
RESUMED = Resumed(pipeline_id=PIPELINE_ID, by="ann", written_at_ms=7_000)


def see(*ends: int, events: tuple[Event, ...] = (bound(), PUBLISHED), topic_id: str = "id-1") -> Sight:
    """Of the ends of the partitions 0, 1, … and the log's events; without any there is no log."""
    pipeline = load(ROOT / "examples/shop/pipeline.yaml")
    assert isinstance(pipeline, SinkPipeline)
    found = {at(partition): end for partition, end in enumerate(ends)}
    return SinkWatch(pipeline).sight(found, log(*events) if events else None, {TOPIC: topic_id})


def test_before_the_first_publish_all_that_is_there_waits() -> None:
    for events in ((), (bound(),)):
        assert see(3, 4, events=events) == Sight(lag=7, end=7, bootstrapped=False)


def test_lag_is_what_no_publish_covers_and_a_new_partition_is_read_from_its_beginning() -> None:
    assert see(10, 20) == Sight(lag=0, end=30, bootstrapped=True, published_s=5.5)
    assert see(12, 20, 4) == Sight(lag=6, end=36, bootstrapped=True, published_s=5.5, by_topic={TOPIC: 6})


def test_what_is_published_but_not_committed_does_not_wait_in_the_source() -> None:
    assert see(10, 20, events=(bound(), written("b1"), PUBLISHED)).lag == 0


def test_an_end_below_its_position_is_a_contradiction_and_hides_no_lag() -> None:
    seen = see(7, 24)
    assert seen.lag == 4
    names(seen.contradiction or "", at(0), 3)


def test_a_topic_that_was_made_anew_is_a_contradiction_though_its_ends_fit() -> None:
    names(see(10, 20, topic_id="id-2").contradiction or "", "topic-recreated", TOPIC)


def test_a_pause_is_told_until_it_is_ended_and_the_last_answer_is_known() -> None:
    paused = see(10, 20, events=(bound(), PUBLISHED, PAUSED))
    names(paused.paused or "", "ann", "upgrade")
    assert paused.answer == ""
    resumed = see(10, 20, events=(bound(), PUBLISHED, PAUSED, RESUMED))
    assert (resumed.paused, resumed.answer) == (None, RESUMED.event_id)
    answer = Resolved(pipeline_id=PIPELINE_ID, finding="f", subject="s", choice="c", by="ana", written_at_ms=9_000)
    assert see(10, 20, events=(bound(), PUBLISHED, RESUMED, answer)).answer == answer.event_id
    names(see(3, events=(bound(), PAUSED)).paused or "", "ann", "upgrade")


def test_a_broker_out_of_reach_is_told_in_time_since_other_sensors_wait(tmp_path: Path) -> None:
    nobody = SinkWatch(Flow.create(tmp_path, f"127.0.0.1:{free_port()}", "nowhere").pipeline)
    begun = time.monotonic()
    with raises(Code.NO_BROKER, "nowhere", "`bootstrap.servers`", of=Unreachable):
        nobody.look()
    assert time.monotonic() - begun < 3 * watch.LOOK_TIMEOUT_S
    # Or its client would go on looking for it.
    watch._shared_admin.cache_clear()  # pyright: ignore[reportPrivateUsage]

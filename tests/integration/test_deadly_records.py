"""A record that ends the process which decodes it stops one run, and is a dead letter of the next."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.formats import FORMATS
from calve.sink_core.error_codes.records import DEADLY as CODE
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.sink.write import deadly
from tests.deadly_format import DEADLY, KILLS, run
from tests.launch import FORK, calve, printed
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

GOOD = [b"id=%d text=a" % number for number in range(3_000)]


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setitem(FORMATS, DEADLY.name, DEADLY)
    monkeypatch.setattr(deadly, "_MODULE", "tests.deadly_format")
    source = {"value": {"type": DEADLY.name}}
    columns = {"columns": {"id": "string", "text": "string"}}
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), auto_create=columns, extra={"source": source})


VALUES = [*GOOD[:1_000], KILLS, *GOOD[1_000:2_500], b"no pair", KILLS + b" text=b", *GOOD[2_500:]]


def ended(flow: Flow, path: str = "") -> int | None:
    """How a run in a process of its own ends."""
    process = FORK.Process(target=run, args=(str(flow.pipeline.path), path))
    process.start()
    process.join()
    return process.exitcode


def prove(flow: Flow) -> None:
    assert sorted(int(row["id"]) for row in flow.rows()) == [*range(3_000)]
    letters = {row["offset"]: row["error"] for row in flow.rows(flow.pipeline.dead_letter_table)}
    assert letters.keys() == {1_000, 2_501, 2_502}
    assert [CODE.code in letters[at] and "SIGSEGV" in letters[at] for at in sorted(letters)] == [True, False, True]
    with flow.session() as session:
        assert verify(session, deep=True).violations == ()


def test_exactly_those_records_are_set_aside_and_all_others_are_rows(flow: Flow, produce: Produce) -> None:
    produce(flow.topic, VALUES)
    assert ended(flow) == -signal.SIGSEGV
    assert flow.rows() == []
    printed(calve("run", flow.pipeline.path))
    prove(flow)


def test_a_task_on_spark_dies_of_them_and_is_done_again_with_care(flow: Flow, produce: Produce, tmp_path: Path) -> None:
    flow = flow.but(extra={**flow.extra, "batch": {"spark_from_records": 0}}, spark={"master": "local[1]"})
    # Read by each Python process that Spark starts.
    (tmp_path / "sitecustomize.py").write_text("from tests.deadly_format import know\nknow()\n")
    produce(flow.topic, VALUES)
    assert ended(flow, str(tmp_path)) == 0
    prove(flow)

"""A step that fails takes no other's figures with it; what is measured here is a commit."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from pathlib import Path

import pytest

from bench import coordinator
from bench.figure import Figure
from bench.part import Part, Place, Step, measure
from bench.proof import prove
from calve.orchestration.local.broker import Broker
from tests.pipelines import Flow
from tests.support import TopicFactory


@pytest.mark.faults
def test_a_step_that_fails_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    def fail() -> Generator[Figure]:
        yield Figure("kept", "before it failed", 1, "s")
        raise SystemExit("no peer to be had")

    def steps(place: Place, options: argparse.Namespace) -> Generator[Step]:
        yield Step("a peer", fail)
        yield from coordinator.PART.steps(place, options)

    parser = argparse.ArgumentParser()
    coordinator.PART.options(parser)
    sizes = "--runs 1 --files 2 --tables --filled --served --postgres --silent --snapshots --plan 4"
    options = parser.parse_args(sizes.split(), argparse.Namespace(directory=tmp_path))
    found = measure(Part("commits", "", coordinator.PART.options, steps, smoke=""), options)
    assert [figure.name for figure in found.figures] == ["kept", "files-2", "plan-4"]
    assert found.errors == {"a peer": "SystemExit: no peer to be had"}
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_cannot_begin_is_noted(tmp_path: Path) -> None:
    (tmp_path / "coordinator").write_text("a file where its folder is to be")
    found = measure(coordinator.PART, argparse.Namespace(directory=tmp_path))
    assert found.errors.keys() == {"set-up"}
    assert "FileExistsError" in found.errors["set-up"]


def test_a_measured_pipeline_that_lost_a_row_is_an_error(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    flow.produce(range(10))
    flow.run()
    prove(flow.pipeline)
    flow.load_table(flow.pipeline.ledger_table).delete("end_offset = 10")
    with pytest.raises(SystemExit, match="is not proven"):
        prove(flow.pipeline)

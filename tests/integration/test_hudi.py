"""A Hudi table is created, written and committed to, beside an Iceberg table of the same records."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.orchestration.cli.main import app
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_UNREACHABLE
from calve.sink_core.hudi.java.fetched import PYSPARK
from calve.sink_core.jars import HUDI
from calve.sink_core.sink.verify.proof import verify
from tests import hudi_tables
from tests.codes import says
from tests.hudi_tables import NAMES
from tests.launch import calve
from tests.support import Produce, TopicFactory


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_each_record_is_in_both_tables_once(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, table_type: str
) -> None:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1), hudi={"type": table_type})
    for first in (0, 100):
        flow.produce(range(first, first + 100))
        landed = [commit for report in flow.run().commits for commit in report.landed]
        assert [commit.rows for commit in landed if commit.table == NAMES[1]] == [100]
    folder = hudi_tables.place(flow, NAMES[1]).folder
    assert hudi_tables.ids(folder) == flow.ids() == list(range(200))
    assert set(hudi_tables.completions(folder).values()) == {1}


def test_it_is_given_columns_that_records_need(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1), evolve=["add_column"])
    produce(flow.topic, [b'{"id": 1, "text": "a"}'])
    flow.run()
    produce(flow.topic, [b'{"id": 2, "text": "b", "more": 3}'])
    flow.run()
    found = hudi_tables.rows(hudi_tables.place(flow, NAMES[1]).folder)
    assert sorted((row["id"], row["more"]) for row in found) == [(1, None), (2, 3)]


def test_dead_letters_that_fit_by_now_are_moved_into_it_once(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1), unknown_fields="dead_letter")
    produce(flow.topic, [b'{"id": 1, "text": "a"}', b'{"id": 2, "text": "b", "more": 3}'])
    flow.run()
    folder = hudi_tables.place(flow, NAMES[1]).folder
    assert hudi_tables.ids(folder) == flow.ids() == [1]
    wider = hudi_tables.both(tmp_path, broker.bootstrap, flow.topic)
    fits = flow.but(extra={**wider.extra, "hudi": flow.extra["hudi"]})
    for moved in (1, 0):
        done = CliRunner().invoke(app, ["dead-letters", "replay", str(fits.pipeline.path), "--yes", "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["moved"] == moved
    assert hudi_tables.ids(folder) == flow.ids() == [1, 2]
    with fits.session() as session:
        assert verify(session, deep=True).violations == ()


def test_a_table_that_the_reader_gives_up_on_is_written_and_not_looked_into(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    columns = {"id": "long", "text": "string", "at": "timestamp"}
    flow = hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1), auto_create={"columns": columns})
    flow.produce(range(3))
    flow.run()
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.violations == ()
    # In the words of the package.
    assert any("not yet implemented" in each.why for each in report.not_checked if each.subject == NAMES[1])


def test_two_pipelines_feed_one_table(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory) -> None:
    one, two = (hudi_tables.both(tmp_path, broker.bootstrap, kafka_topic(1)) for _ in range(2))
    two = replace(two, extra={**two.extra, "hudi": one.extra["hudi"]})
    for number, flow in enumerate((one, two, one)):
        flow.produce(range(100 * number, 100 * number + 100))
        flow.run()
    assert hudi_tables.ids(hudi_tables.place(one, NAMES[1]).folder) == list(range(300))
    for flow in (one, two):
        with flow.session() as session:
            assert verify(session, deep=True).violations == ()


def test_what_it_needs_is_fetched_by_a_command_that_says_size_and_seconds(tmp_path: Path) -> None:
    done = calve("hudi", "prepare", "--row-changes", "--json")
    names = [
        (each["name"].partition(",")[0], each["bytes"] > 50_000_000) for each in json.loads(done.stdout)["fetched"]
    ]
    assert ([name for name, _ in names][1:], [large for _, large in names]) == ([PYSPARK], [True, True])
    [there] = calve("hudi", "prepare").stdout.splitlines()
    assert str(HUDI.folder) in there
    assert re.search(r"\d+ MB", there)
    # Where PyPI can't be reached.
    (tmp_path / HUDI.folder.name).symlink_to(HUDI.folder)
    nowhere = {"CALVE_JARS": str(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_RETRIES": "0"}
    refused = calve("hudi", "prepare", "--row-changes", **nowhere)
    assert refused.returncode == EXIT_UNREACHABLE
    says(refused.stderr, Code.NO_SPARK_35, PYSPARK, f"pip install --no-deps --target {tmp_path}")

"""Where the catalog is a service, several tables are committed at a time; whatever happens, each has a record once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from calve.orchestration.cli.boundary import INTERRUPTED
from calve.orchestration.local.broker import Broker
from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.iceberg.commit.table import TableCommitter
from calve.sink_core.sink.loop.coordinator import CommitReport
from calve.sink_core.sink.verify.proof import verify
from tests.launch import forked, started
from tests.pipelines import Flow
from tests.rest_catalog import Proxy, RestCatalog, proxied
from tests.support import TopicFactory

TABLES = 6
# Ledger and dead letters.
INTERNAL = 2


@dataclass(frozen=True)
class Restful:
    """A pipeline that puts each record into all tables; its catalog is behind a proxy. Ids 0 to 9 are there."""

    flow: Flow
    proxy: Proxy

    def publish(self, ids: range) -> None:
        self.flow.produce(ids)
        self.flow.publish()

    def proven(self, *ids: int) -> None:
        assert [self.flow.ids(table) for table in self.flow.tables] == [list(ids)] * TABLES
        with self.flow.session() as session:
            assert verify(session, deep=True).violations == ()


@pytest.fixture
def restful(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, rest_catalog: RestCatalog) -> Generator[Restful]:
    plain = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    with proxied(rest_catalog.port) as proxy:
        flow = plain.but(
            tables=tuple(f"{plain.name}.t{number}" for number in range(TABLES)),
            lake=rest_catalog.directory,
            catalog_name=rest_catalog.name,
            lake_properties={"type": "rest", "uri": proxy.uri},
        )
        flow.produce(range(10))
        flow.run()
        proxy.most_at_a_time = 0
        proxy.commits.clear()
        yield Restful(flow, proxy)


def batches_of(flow: Flow, table: str) -> list[str]:
    return [batch for _, own in flow.own_snapshots(table) for batch in own.batches]


def test_as_many_tables_are_committed_at_a_time_as_are_asked_for(restful: Restful) -> None:
    restful.proxy.commit_delay_s = 0.3
    restful.publish(range(10, 20))
    report = restful.flow.commit()
    assert [commit.table for commit in report.landed] == sorted(
        [*restful.flow.tables, restful.flow.pipeline.ledger_table]
    )
    assert 1 < restful.proxy.most_at_a_time <= TABLES + INTERNAL
    restful.proxy.most_at_a_time = 0
    restful.publish(range(20, 30))
    restful.flow.but(extra={"commit": {"parallel_tables": 1}}).commit()
    assert restful.proxy.most_at_a_time == 1
    restful.proven(*range(30))


def test_a_sqlite_catalog_is_written_to_by_one_thread(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    flow = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), tables=("db.one", "db.two"))
    with flow.session() as session:
        assert session.lake.threads.number == 1


def test_a_finding_on_one_table_holds_up_none_of_the_others(restful: Restful) -> None:
    flow, bad = restful.flow, restful.flow.tables[2]
    restful.publish(range(10, 20))
    with flow.iceberg() as catalog:
        catalog.drop_table(bad)
    report = flow.commit()
    assert list(report.failed) == [bad]
    assert isinstance(report.failed[bad], FindingError)
    assert [flow.ids(each) for each in flow.tables if each != bad] == [list(range(20))] * (TABLES - 1)


def test_tables_that_are_ahead_of_what_was_read_of_the_log_are_left_to_the_caller(restful: Restful) -> None:
    with restful.flow.session() as behind:
        behind.bind()
        read = behind.log.state.next_offset
        restful.publish(range(10, 20))
        restful.flow.commit()
        assert behind.log.state.next_offset == read
        names = behind.pipeline.table_names
        outcomes = dict(behind.lake.threads.each(TableCommitter.commit, behind.committer(), names))
        assert behind.log.state.next_offset > read
    assert outcomes.keys() == set(names)
    found = [outcomes[table] for table in restful.flow.tables]
    assert [(c.landed, c.stored_offset > read) for c in found if c and not isinstance(c, Exception)] == [
        (False, True)
    ] * TABLES
    restful.proven(*range(20))


def test_two_coordinators_at_once_take_each_batch_into_each_table_once(restful: Restful) -> None:
    for start in (10, 20, 30):
        restful.publish(range(start, start + 10))
    with ThreadPoolExecutor(2) as both:
        reports = [each.result() for each in [both.submit(restful.flow.commit) for _ in range(2)]]
    assert [report.failed for report in reports] == [{}, {}]
    assert [len(batches_of(restful.flow, table)) for table in restful.flow.tables] == [4] * TABLES
    restful.proven(*range(40))


@pytest.mark.parametrize("place", ["commit.after-check@2", "commit.after-list@4", "commit.after-swap@3"])
def test_after_a_kill_amid_several_commits_the_next_coordinator_takes_in_the_rest(restful: Restful, place: str) -> None:
    restful.publish(range(10, 20))
    name, _, visit = place.partition("@")
    killed = forked("commit", restful.flow.pipeline.path, **{VARIABLE: f"{name}=kill@{visit}"})
    assert killed.returncode == -signal.SIGKILL, killed
    report = restful.flow.commit()
    assert not report.failed
    assert [len(batches_of(restful.flow, table)) for table in restful.flow.tables] == [2] * TABLES
    restful.proven(*range(20))


def test_what_a_broken_off_round_has_begun_comes_to_its_end(restful: Restful) -> None:
    restful.publish(range(10, 20))

    def stop(_commit: object) -> None:
        raise KeyboardInterrupt

    def broken_off() -> CommitReport:
        with restful.flow.session() as session:
            session.bind()
            return session.coordinator().commit(on_table=stop)

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    restful.flow.commit()
    restful.proven(*range(20))


def test_ctrl_c_does_not_wait_for_a_catalog_that_does_not_answer(restful: Restful) -> None:
    """Which is given a minute otherwise, at each try."""
    restful.publish(range(10, 20))
    restful.proxy.commit_delay_s = 3600
    command = started("commit", restful.flow.pipeline.path)
    while restful.proxy.most_at_a_time < 2:
        assert command.process.is_alive()
        time.sleep(0.1)
    assert command.process.pid is not None
    os.kill(command.process.pid, signal.SIGINT)
    assert command.done().returncode == INTERRUPTED
    assert restful.proxy.commits == []
    restful.proxy.commit_delay_s = 0
    restful.flow.commit()
    restful.proven(*range(20))

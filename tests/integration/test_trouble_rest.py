"""A REST catalog in trouble: whatever becomes of a request or its answer, each record is in the table once."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError, TableUnusable, UnknownOutcome, Unreachable
from calve.sink_core.iceberg.catalog import rest
from calve.sink_core.iceberg.commit.swap import ATTEMPTS
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises, says
from tests.gate import every_second
from tests.launch import calve
from tests.pipelines import Flow, reached
from tests.rest_catalog import Answer, Proxy, RestCatalog, proxied
from tests.support import TopicFactory

BEFORE, AFTER = False, True
CUT = 0


@dataclass(frozen=True)
class Restful:
    """A pipeline whose catalog is asked through a proxy; it Has ids 0 to 9."""

    flow: Flow
    catalog: RestCatalog
    proxy: Proxy

    def proven(self, *ids: int) -> None:
        assert self.flow.ids() == list(ids)
        with self.flow.session() as session:
            assert verify(session, deep=True).violations == ()


@pytest.fixture
def restful(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, rest_catalog: RestCatalog) -> Generator[Restful]:
    plain = Flow.create(tmp_path, broker.bootstrap, kafka_topic(1))
    with proxied(rest_catalog.port) as proxy:
        flow = plain.but(
            tables=(f"{plain.name}.events",),
            lake=rest_catalog.directory,
            catalog_name=rest_catalog.name,
            lake_properties={"type": "rest", "uri": proxy.uri},
        )
        flow.produce(range(10))
        flow.run()
        assert flow.ids() == list(range(10))
        proxy.commits.clear()
        yield Restful(flow, rest_catalog, proxy)


@pytest.mark.parametrize("status", every_second([500, 503, CUT]))
@pytest.mark.parametrize("when", [BEFORE, AFTER], ids=["before", "after"])
def test_a_commit_answered_with_an_error_lands_once(restful: Restful, when: bool, status: int) -> None:
    restful.flow.produce(range(10, 20))
    restful.proxy.trouble += [(when, status)] * 2
    report = restful.flow.run()
    assert report.commits[-1].failed == {}
    assert restful.proxy.commits[:2] == [status, status]
    batches = [batch for _, own in restful.flow.own_snapshots() for batch in own.batches]
    assert len(batches) == len(set(batches)) == 2
    restful.proven(*range(20))


@pytest.mark.parametrize("when", [BEFORE, AFTER], ids=["before", "after"])
def test_a_catalog_that_refuses_every_commit_is_named_and_caught_up_with_later(restful: Restful, when: bool) -> None:
    flow, proxy = restful.flow, restful.proxy
    flow.produce(range(10, 20))
    proxy.lasting = (when, 503)
    if when is BEFORE:
        with raises(Code.COMMITS_FAIL, ATTEMPTS):
            flow.run()
        assert flow.ids() == list(range(10))
    else:
        flow.run()
    proxy.lasting = None
    flow.produce(range(20, 25))
    flow.run()
    restful.proven(*range(25))


def test_a_catalog_whose_every_answer_comes_late_is_waited_for(restful: Restful) -> None:
    restful.flow.produce(range(10, 20))
    restful.proxy.delay_s = 1.5
    report = restful.flow.run()
    restful.proxy.delay_s = 0.0
    assert report.ended == "caught up"
    assert [commit.conflicts for done in report.commits for commit in done.landed] == [0, 0]
    restful.proven(*range(20))


def test_a_commit_answered_later_than_anybody_waits_lands_once(
    restful: Restful, monkeypatch: pytest.MonkeyPatch
) -> None:
    restful.flow.produce(range(10, 20))
    monkeypatch.setattr(rest, "ANSWER_S", 2.0)
    restful.proxy.commit_delay_s = 5.0
    report = restful.flow.run()
    restful.proxy.commit_delay_s = 0.0
    assert report.ended == "caught up"
    batches = [batch for _, own in restful.flow.own_snapshots() for batch in own.batches]
    assert len(batches) == len(set(batches)) == 2
    restful.proven(*range(20))


NOT_NOW = [Answer(503), Answer(429, headers=(("retry-after", "1"),)), Answer(502, b"<html>"), Answer(CUT)]
"""As many as there are repetitions."""


def test_a_catalog_that_can_not_answer_just_now_is_asked_again(restful: Restful) -> None:
    restful.flow.produce(range(10, 20))
    restful.proxy.reads += NOT_NOW
    assert restful.flow.run().ended == "caught up"
    assert restful.proxy.reads == []
    restful.proven(*range(20))


@pytest.mark.parametrize("place", ["opening catalog", "loading table"])
@pytest.mark.parametrize("status", every_second([200, 404]))
def test_a_page_in_place_of_an_answer_is_said_to_be_one(restful: Restful, status: int, place: str) -> None:
    restful.flow.produce(range(10, 20))
    page = Answer(status, b"<html>\n<title>Log in</title>", (("content-type", "text/html; charset=utf-8"),))

    def answer_with_pages() -> None:
        restful.proxy.reads += [page] * 50

    said = rf"{place}.*GET /v1/\S+ was answered {status} with a page: <html> <title>Log in"
    with ExitStack() as stack:
        if place == "opening catalog":
            answer_with_pages()
        else:
            stack.enter_context(reached("write.after-files", answer_with_pages))
        with pytest.raises(Unreachable, match=said):
            restful.flow.run()
    restful.proxy.reads.clear()
    restful.flow.run()
    restful.proven(*range(20))


def test_an_answer_that_is_no_catalogs_is_said_to_be_none(restful: Restful) -> None:
    restful.flow.produce(range(10, 20))

    def answer_otherwise() -> None:
        restful.proxy.reads += [Answer(200, b'{"status": "ok"}', (("content-type", "application/json"),))] * 50

    with (
        raises(Code.NO_CATALOG, "catalog"),
        reached("write.after-files", answer_otherwise),
    ):
        restful.flow.run()
    restful.proxy.reads.clear()
    restful.flow.run()
    restful.proven(*range(20))


STOPS: dict[str, Callable[[RestCatalog], None]] = {"stopped": RestCatalog.stop, "hung": RestCatalog.hang}


@pytest.mark.parametrize("how", every_second(STOPS))
@pytest.mark.parametrize(
    "place",
    ["write.after-files", "commit.after-check", "commit.after-list"],
)
def test_a_catalog_that_goes_away_ends_the_run_and_the_next_one_makes_it_good(
    restful: Restful, place: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    restful.flow.produce(range(10, 20))

    def go_away() -> None:
        STOPS[how](restful.catalog)
        monkeypatch.setattr(rest, "ANSWER_S", 1.0)

    # What other threads have asked by then is waited for as long as this.
    monkeypatch.setattr(rest, "ANSWER_S", 10.0)
    gone = pytest.raises((Unreachable, UnknownOutcome), match=r"Timeout|Connection")
    try:
        with gone as raised, reached(place, go_away):
            restful.flow.run()
        assert raised.value.code in (Code.CATALOG_AWAY, Code.OUTCOME_UNSEEN)
        with raises(Code.CATALOG_AWAY, "catalog"):
            restful.flow.run()
    finally:
        monkeypatch.undo()
        restful.catalog.stop()
        restful.catalog.start()
    restful.flow.run()
    restful.proven(*range(20))


def test_a_catalog_that_keeps_no_tags_is_found_out_by_the_first_commit(restful: Restful) -> None:
    flow = restful.flow
    other = flow.but(name=f"{flow.name}_2", tables=(f"{flow.name}.others",))
    restful.proxy.keeps_tags = False
    with raises(Code.NO_TAGS, other.name, of=TableUnusable):
        other.run()
    assert other.ids() == list(range(10))


def test_nessie_is_refused_before_anything_is_published(restful: Restful) -> None:
    """By what its REST interface answers first; all else here is another catalog's."""
    said = {"defaults": {}, "overrides": {"nessie.is-nessie-catalog": "true"}}
    nessie = Answer(200, json.dumps(said).encode(), (("content-type", "application/json"),))
    restful.proxy.reads.append(nessie)
    done = calve("check", restful.flow.files / "pipeline.yaml")
    says(done.stdout, Code.NO_TAGS)
    restful.proxy.reads.append(nessie)
    with raises(Code.NO_TAGS, of=ConfigError):
        restful.flow.run()

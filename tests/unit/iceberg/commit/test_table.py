"""Commits to one table: each published batch once, whatever is still missing in the log and whatever reply is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.commit.plan import CommitPlan, SpecialCase
from calve.sink_core.iceberg.commit.table import TableCommitter
from tests.codes import finding, raises
from tests.unit.iceberg.commit.build import NOW
from tests.unit.iceberg.commit.on_catalog import CommitTable, World, rows, through
from tests.unit.tables.log.build import TABLE, complete, reported


@pytest.fixture
def world(catalog: Catalog) -> World:
    return World.create(catalog)


def test_what_is_published_is_taken_in_once(world: World) -> None:
    world.publish("b1", 1, 2)
    world.publish("b2", 3)
    first, again = world.commit(), world.commit()
    assert (first.landed, first.batches, first.rows, again.landed) == (True, ("b1", "b2"), 3, False)
    assert world.ids() == [1, 2, 3]


def test_a_batch_of_which_the_end_is_not_visible_yet_comes_later_and_not_never(world: World) -> None:
    """Its files are told of, and not that it is published: the table must not say that it has all that was read."""
    world.publish("b1", 1)
    world.log.events.append(world.event("b2", 2))
    world.commit()
    assert world.ids() == [1]
    world.log.events.append(complete("b2"))
    world.commit()
    assert world.ids() == [1, 2]


def test_a_table_that_was_put_back_to_what_it_was_before_its_last_report_is_not_committed_to(world: World) -> None:
    world.publish("b1", 1)
    world.commit()
    world.log.events.append(reported(5, uuid=world.view.uuid))
    world.publish("b2", 2)
    with raises(finding("table-restored")):
        world.commit()
    assert world.ids() == [1]


@pytest.mark.parametrize("arrived", [True, False])
def test_a_commit_whose_reply_was_lost_is_looked_for(
    world: World, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """One that did not arrive is made again; nobody may call it landed, as the table would stay without its rows."""
    world.publish("b1", 1)
    calls: list[object] = []

    def edge(real: CommitTable, table: Table, given: Any) -> object:
        calls.append(given)
        if len(calls) > 1:
            return real(table, *given)
        if arrived:
            real(table, *given)
        raise ConnectionError("no answer from the catalog")

    through(world.catalog, monkeypatch, edge)
    done = world.commit()
    assert (done.landed, done.rows, len(calls)) == (True, 1, 1 if arrived else 2)
    assert world.ids() == [1]


def test_a_commit_that_nobody_can_ask_about_is_not_said_to_have_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have landed."""
    world.publish("b1", 1)
    committer = world.committer()

    def gone(*_: object) -> object:
        raise ConnectionError("no answer from the catalog")

    def edge(real: CommitTable, table: Table, given: Any) -> object:
        real(table, *given)
        monkeypatch.setattr(world.catalog, "load_table", gone)
        return gone()

    through(world.catalog, monkeypatch, edge)
    with raises(Code.OUTCOME_UNSEEN):
        committer.commit(world.view.table)


def test_files_for_a_table_that_was_created_again_do_not_go_into_the_new_one(world: World) -> None:
    world.publish("b1", 1)
    world.recreate()
    with raises(finding("table-recreated")):
        world.commit()
    assert world.ids() == []


def test_a_table_that_another_pipeline_feeds_with_who_knows_what_is_not_committed_to(world: World) -> None:
    """Its snapshots say of which pipeline they are, and there is no ledger that would say what that has read."""
    world.publish("b1", 1)
    group = "calve.dev.europe.departures"
    said = {
        f"kafka.connect.offsets.{group}.control.{group}": '{"0": 4}',
        "calve.departures.batches": "b9",
        "calve.departures.cluster-id": NOW.cluster_id,
    }
    world.table.append(rows(100), snapshot_properties=said)
    with raises(finding("table-fed-twice"), group):
        world.commit()
    assert world.ids() == [100]


class OneBatch(SpecialCase):
    """Each batch has a commit of its own."""

    def choose(self, plan: CommitPlan) -> CommitPlan:
        first, rest = plan.pending[:1], plan.pending[1:]
        if not rest:
            return plan
        return replace(plan, pending=first, events=first, stored_offset=rest[0].offset, more=True)


class BatchByBatch(TableCommitter):
    @property
    def special_cases(self) -> tuple[SpecialCase, ...]:
        return (*super().special_cases, OneBatch())


def test_another_special_case_is_a_class_and_a_row(world: World) -> None:
    world.publish("b1", 1)
    world.publish("b2", 2)
    world.publish("b3", 3)
    plain = world.committer()
    done = BatchByBatch(plain.catalog, plain.tag, plain.keys, plain.now, plain.log, "f.yaml", "l", plain.others).commit(
        TABLE
    )
    assert done is not None
    assert (done.batches, done.rows, len(world.view.snapshots)) == (("b1", "b2", "b3"), 3, 3)
    assert (world.ids(), world.commit().landed) == ([1, 2, 3], False)

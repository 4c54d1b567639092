"""A property of a table is changed by one swap, tried again after a lost race."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from calve.sink_core.codes import Code
from calve.sink_core.iceberg.commit.swap import ATTEMPTS
from calve.sink_core.iceberg.commit.table_property import change_property
from tests.codes import raises
from tests.unit.iceberg.commit.on_catalog import CommitTable, World, through
from tests.unit.tables.log.build import TABLE

KEY = "calve.flights.adopted"


@pytest.fixture
def world(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    return World.create(catalog)


def added(world: World, word: str) -> bool:
    return change_property(world.catalog, TABLE, KEY, lambda before: f"{before}{word}")


def test_a_value_is_made_of_the_one_before(world: World) -> None:
    assert added(world, "a")
    assert added(world, "b")
    assert world.table.properties[KEY] == "ab"


def test_a_table_that_is_not_there_has_no_properties(world: World) -> None:
    world.catalog.drop_table(TABLE)
    assert not added(world, "a")


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
def test_a_lost_race_is_tried_again_from_the_load(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    lost: list[str] = []

    def edge(real: CommitTable, table: Table, given: Any) -> object:
        if not lost:
            lost.append("once")
            with world.table.transaction() as other:
                other.set_properties({KEY: "theirs,"})
            raise error("too late")
        return real(table, *given)

    through(world.catalog, monkeypatch, edge)
    assert added(world, "ours")
    assert world.table.properties[KEY] == "theirs,ours"


def test_who_loses_every_race_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Table] = []

    def edge(_real: CommitTable, table: Table, _given: Any) -> object:
        tries.append(table)
        raise CommitFailedException("too late")

    through(world.catalog, monkeypatch, edge)
    with raises(Code.RACES_LOST, TABLE, ATTEMPTS, "attempts"):
        added(world, "ours")
    assert len(tries) == ATTEMPTS

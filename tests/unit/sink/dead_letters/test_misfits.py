"""Errors of dead letters are taken back to the field of the table that they are about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from calve.sink_core.sink.dead_letters.misfits import Misfits, counted, place_of
from tests.codes import names

TABLES = ("db.a", "db.b")
EARLY, LATE = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))


@pytest.mark.parametrize(
    ("error", "place"),
    [
        ("db.b: more: string, not number", ("db.b", "more")),
        ("db.a: outer.inner: string, not number", ("db.a", "outer.inner")),
        ("db.a: with blank: string, not number", ("db.a", "with blank")),
        ("db.a: price.amount: 1.234 has more digits", ("db.a", "price.amount")),
        ("price: required, and null", ("", "price")),
        ("db.a: two of 'x' and 7", ("db.a", "two of … and …")),
    ],
)
def test_an_error_names_table_and_field(error: str, place: tuple[str, str]) -> None:
    assert place_of(error, TABLES) == place


def test_the_only_table_need_not_be_named() -> None:
    assert place_of("more: string, not number", TABLES[:1]) == ("db.a", "more")


def test_only_what_did_not_fit_is_counted_from_its_earliest_record_on() -> None:
    rows = [
        ("fit", "db.a: x: string, not number", LATE),
        ("decode", "db.a: x: is broken", EARLY),
        ("fit", "db.a: x: boolean, not number", EARLY),
        ("fit", "db.b: y: required, and null", None),
    ]
    found = counted(rows, TABLES)
    assert found == (Misfits("db.a", "x", 2, "2026-01-01T00:00:00+00:00"), Misfits("db.b", "y", 1, None))
    names(str(found[1]), 1, "y", "db.b")
    names(str(found[0]), 2, "x", "db.a", "2026-01-01T00:00:00+00:00")

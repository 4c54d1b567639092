"""Values of a real PostgreSQL by query and by the log: what each is by PostgreSQL's own text, and the same by both."""

from __future__ import annotations

import io
import re
from collections.abc import Generator
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from hypothesis import Phase, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from calve.sink_core.config.source_systems import TopicNames
from calve.sink_core.source.base import Limits, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.opening import OpenedSource, SourceSpec
from calve.sink_core.source.postgres.records import Origin
from calve.sink_core.source.postgres.records import Rows as RowsAlone
from calve.sink_core.source.postgres.server import Server
from calve.sink_core.source.postgres.values import SESSION
from calve.sink_core.source.systems import LOG
from tests.any_values.postgres import KINDS, PREPARE, Kind, Number, as_json, parsed, values_of
from tests.any_values.series import MANY as SERIES
from tests.any_values.series import compare_many
from tests.postgres import Postgres, postgres
from tests.queried import MANY, Asking, given

_COPIED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Both:
    """A database that is read by query, by its log and by a snapshot."""

    def __init__(self, server: Postgres) -> None:
        self.server, self._tables = server, 0
        given(server.url, *PREPARE, "CREATE PUBLICATION all_of_it FOR ALL TABLES")
        options = {
            "topics": TopicNames("{table}"),
            "slot": "s",
            "publication": "all_of_it",
            "snapshot": "never",
            "shape": "row",
        }
        self._log = SourceSpec(LOG, {"url": server.url, **options})
        with OpenedSource(self._log) as log:
            log.prepare({})
        self.stored = dict[FlatMap, FlatMap]()

    def compare(self, kinds: list[Kind], rows: list[tuple[str | None, ...]]) -> list[dict[str, Any]]:
        """Each value by query is that of PostgreSQL's text, and the record that of the log and of a snapshot. Returns
        the values by row.
        """
        self._tables += 1
        table = f"t{self._tables}"
        types = [kind.statements(f"{table}_{at}") for at, kind in enumerate(kinds)]
        columns = [f"c{at}" for at in range(len(kinds))]
        defined = ", ".join(f"{name} {type_}" for name, (_, type_) in zip(columns, types, strict=True))
        with closing(psycopg2.connect(self.server.dsn)) as connection, connection.cursor() as cursor:
            for name, value in SESSION.items():
                cursor.execute(f"SET {name} = {value}")
            cursor.execute("SET search_path = public")
            for statement in (statement for made, _ in types for statement in made):
                cursor.execute(statement)
            cursor.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {defined})")
            placed = ", ".join(f"%s::text::{type_}" for _, type_ in types)
            for number, row in enumerate(rows):
                cursor.execute(f"INSERT INTO {table} VALUES ({number}, {placed})", row)
            connection.commit()
            cursor.execute(f"SET search_path = {SESSION['search_path']}")
            cursor.copy_expert(f"COPY (SELECT * FROM public.{table} ORDER BY id) TO STDOUT", copied := io.StringIO())
        texts = [[_copied(cell) for cell in line.split("\t")] for line in copied.getvalue().split("\n")[:-1]]
        wanted = [
            {name: as_json(kind, text) for name, kind, text in zip(columns, kinds, line[1:], strict=True)}
            for line in texts
        ]
        with Asking(self.server.url, {"table": f"public.{table}"}) as asking:
            records = {record.key: record.value for record in asking.records()}
            assert asking.bad == []
        assert [_without_id(records[b'{"id":%d}' % number]) for number in range(len(rows))] == wanted
        assert self._logged(table) == records
        assert self._found(table) == records
        given(self.server.url, f"DROP TABLE {table}")
        return wanted

    def _found(self, table: str) -> dict[bytes | None, bytes | None]:
        with closing(Server(self.server.url)) as server:
            [published] = [each for each in server.tables("all_of_it") if each.table == table]
            with server.rows(published, table, "s", 0) as found:
                records = [RowsAlone().found(found.layout, cells, Origin(0, 0, 0)) for cells in found.cells]
        return {record.key: record.value for record in records}

    def _logged(self, table: str) -> dict[bytes | None, bytes | None]:
        found = dict[bytes | None, bytes | None]()
        with OpenedSource(self._log) as log:
            # A plan takes a part of a long log.
            while works := log.plan(self.stored, Limits(MANY, MANY)):
                [work] = works
                for rows in log.read(work):
                    assert isinstance(rows, Rows)
                    assert rows.bad == []
                    found |= {record.key: record.value for record in rows.records if record.topic == table}
                    self.stored[work.partition] = rows.offset
            log.acknowledge(self.stored)
        return found


def _without_id(value: bytes | None) -> dict[str, Any]:
    return {name: each for name, each in parsed(value).items() if name != "id"}


def _copied(cell: str) -> str | None:
    """A value from the text form of COPY."""
    if cell == "\\N":
        return None
    return re.sub(r"\\(.)", lambda found: _COPIED.get(found[1], found[1]), cell, flags=re.DOTALL)


@pytest.fixture(scope="module")
def both() -> Generator[Both]:
    # A role's own ideas of how values are written.
    with postgres() as server:
        odd = {"timezone": "Asia/Kolkata", "datestyle": "SQL, DMY", "intervalstyle": "iso_8601"}
        odd |= {"bytea_output": "escape", "extra_float_digits": "-3"}
        given(server.url, *(f"ALTER ROLE calve SET {name} = '{value}'" for name, value in odd.items()))
        yield Both(server)


TABLES = st.lists(KINDS, min_size=1, max_size=12).flatmap(
    lambda kinds: st.tuples(st.just(kinds), st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=20))
)


# Shrinking would take minutes of a database: the tables that are drawn are small.
@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@drawn(table=TABLES)
def test_a_value_is_what_postgresql_writes_by_query_log_and_snapshot(
    both: Both, table: tuple[list[Kind], list[tuple[str | None, ...]]]
) -> None:
    both.compare(*table)


_COLUMNS, _ROWS = 30, 20
COLUMN = KINDS.flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind), min_size=_ROWS, max_size=_ROWS)))


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_many_values_are_what_postgresql_writes(both: Both) -> None:
    columns = list[tuple[Kind, list[str | None]]]()

    def compare(column: tuple[Kind, list[str | None]]) -> int:
        # A table costs a quarter of a second whatever it holds: one takes the columns of many examples.
        columns.append(column)
        if len(columns) < _COLUMNS:
            return 0
        kinds, values = zip(*columns, strict=True)
        columns.clear()
        return len(kinds) * len(both.compare(list(kinds), list(zip(*values, strict=True))))

    assert compare_many(compare, COLUMN) >= SERIES


@pytest.mark.parametrize(
    ("kind", "text", "json"),
    [
        (Kind("daterange", 0, 0, 0), "[2024-01-01,infinity)", "[2024-01-01,infinity)"),
        (Kind("tstzrange", 0, 0, 0), "[2024-01-01 00:00+00,infinity)", '["2024-01-01 00:00:00+00",infinity)'),
        (Kind("date", 0, 1, 0), "infinity", "infinity"),
        (Kind("timestamptz", 0, 2, 0), "-infinity", "-infinity"),
        (Kind("interval", 1, 0, 0), "{1 mon}", ["1 mon"]),
        (Kind("integer", 1, 1, 0), "{1,2}", [Number("1"), Number("2")]),
        (Kind("date", 1, 0, 0), "{infinity,0044-03-15 BC,12000-01-01}", ["infinity", "0044-03-15 BC", "12000-01-01"]),
        (Kind("timestamptz", 1, 0, 1), "{infinity}", ["infinity"]),
        (Kind("date", 0, 1, 0), "0044-03-15 BC", "0044-03-15 BC"),
        (Kind("integer", 1, 0, 0), "[0:1]={1,2}", [Number("1"), Number("2")]),
        (Kind("double precision", 0, 0, 0), "0.1", Number("0.1")),
        (Kind("inet", 0, 0, 0), "192.168.1.5", "192.168.1.5"),
        (Kind("character(9)", 0, 0, 0), "ab", "ab       "),
        (Kind("boolean", 1, 0, 0), "{t,NULL}", [True, None]),
        (Kind("json", 0, 0, 0), '{"a":  1}', '{"a":  1}'),
        (Kind("pair", 0, 0, 0), "(,)", "(,)"),
    ],
)
def test_values_that_drivers_make_less_of(both: Both, kind: Kind, text: str, json: Any) -> None:
    assert both.compare([kind], [(text,)]) == [{"c0": json}]

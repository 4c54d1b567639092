"""A round: records of every format with any values, read by one pipeline into tables of each mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Protocol

from pyspark.sql import SparkSession

from calve.spark_jobs.engine import SparkEngine
from tests import support
from tests.any_values.json_wires import Connect, Encode, Json, JsonSchema
from tests.any_values.kinds import LONG, Leaf, ListOf, MapOf, StructOf, Type, Unfit, draw, same, stored
from tests.any_values.readers import Row, as_clickhouse_has, by_clickhouse, by_spark
from tests.any_values.schema_wires import Avro, Protobuf
from tests.pipelines import Flow
from tests.schema_registry import SchemaRegistry

MODES: Mapping[str, Mapping[str, Any]] = {
    "append": {},
    "upsert": {"mode": "upsert", "key": ["id"]},
    "merge": {"mode": "upsert", "key": ["id"], "write_mode": "merge"},
}
CLICKHOUSE = "ClickHouse"
BROKEN, TOMBSTONES, ODD_TIMES = 0.002, 0.1, 0.02
_NOW_MS, _LAST_MS = 1_700_000_000_000, 253_402_300_799_999


class Wire(Protocol):
    """A format that records are written in."""

    @property
    def name(self) -> str: ...
    @property
    def names(self) -> Sequence[str]:
        """Of columns."""
        ...

    @property
    def leaves(self) -> Sequence[Leaf]: ...
    @property
    def gaps(self) -> bool:
        """Whether lists and maps may be null, and what is in them."""
        ...

    @property
    def nested(self) -> bool:
        """Whether there may be lists and maps right within lists and maps."""
        ...

    def value(self) -> dict[str, Any]: ...
    def encoder(self, columns: Mapping[str, Type], chance: Random, /) -> Encode: ...
    def broken(self, value: bytes) -> bytes: ...


def wires(registry: SchemaRegistry) -> list[Wire]:
    return [Json(), JsonSchema(registry), Connect(), Avro(registry), Protobuf(registry)]


@dataclass(frozen=True)
class Parts:
    """What a round needs beside a pipeline."""

    registry: SchemaRegistry
    spark: SparkSession
    engine: SparkEngine


@dataclass(frozen=True)
class Sent:
    """Records of one topic: by offset the row that there has to be, None for a tombstone; and the names of columns that
    are bad in a record, none if all of it is."""

    columns: Mapping[str, Type]
    rows: Mapping[int, Row | None]
    times: Mapping[int, datetime | None]
    ids: Mapping[int, int]
    bad: Mapping[int, Sequence[str]]

    def state(self) -> dict[int, int]:
        """The offset of each key's row, in a table of the last ones."""
        state = dict[int, int]()
        for offset, row in self.rows.items():
            if row is None:
                state.pop(self.ids[offset], None)
            else:
                state[self.ids[offset]] = offset
        return state


@dataclass
class Found:
    """What a round has shown."""

    records: Counter[str] = field(default_factory=Counter[str])
    letters: Counter[str] = field(default_factory=Counter[str])
    compared: Counter[str] = field(default_factory=Counter[str])
    """Values, by reader."""

    wrong: list[str] = field(default_factory=list[str])

    def table(self) -> str:
        """In a line."""
        formats = ", ".join(f"{name} {n} ({self.letters[name]} dead letters)" for name, n in self.records.items())
        readers = ", ".join(f"{n} by {name}" for name, n in self.compared.items())
        return f"records: {formats}; values compared: {readers}; that differ: {len(self.wrong)}"


def drawn_columns(wire: Wire, chance: Random, count: int) -> dict[str, Type]:
    """A key, and columns of any types under any names."""
    names = chance.sample(wire.names, k=count)
    return {"id": LONG, **{name: _type(wire, chance, depth=2) for name in names}}


def _type(wire: Wire, chance: Random, depth: int, *, within: bool = False) -> Type:
    shape = chance.choices(("leaf", "list", "map", "struct"), (6, 1, 1, 1) if depth else (1, 0, 0, 0))[0]
    if within and not wire.nested and shape in ("list", "map"):
        shape = "leaf"
    if shape == "list":
        return ListOf(_type(wire, chance, depth - 1, within=True), wire.gaps)
    if shape == "map":
        return MapOf(_type(wire, chance, depth - 1, within=True), wire.gaps)
    if shape == "struct":
        return StructOf({name: _type(wire, chance, depth - 1) for name in ("p", "q_2")[: chance.randint(1, 2)]})
    return chance.choice(wire.leaves)


def send(flow: Flow, topic: str, wire: Wire, chance: Random, *, columns: int, records: int) -> Sent:
    """Fill a topic with records."""
    kinds = drawn_columns(wire, chance, columns)
    encode = wire.encoder(kinds, chance)
    rows, bad, ids, times = dict[int, Row | None](), dict[int, list[str]](), dict[int, int](), dict[int, int]()

    def values() -> Iterable[bytes | None]:
        for offset in range(records):
            ids[offset] = chance.randrange(records // 3)
            odd = chance.random() < ODD_TIMES
            times[offset] = chance.choice((_LAST_MS, _LAST_MS + 1, _NOW_MS * 1000)) if odd else _NOW_MS + offset
            if chance.random() < TOMBSTONES:
                rows[offset] = None
                yield None
                continue
            record = {"id": ids[offset]} | {name: draw(of, chance) for name, of in kinds.items() if name != "id"}
            value = encode(record)
            if chance.random() < BROKEN:
                bad[offset] = []
                yield wire.broken(value)
                continue
            row, unfit = _row(kinds, record)
            if unfit:
                bad[offset] = unfit
            else:
                rows[offset] = row
            yield value

    given = list(values())
    keys = [str(ids[offset]) for offset in range(records)]
    support.produce(flow.bootstrap, topic, given, keys=keys, timestamps=list(times.values()))
    return Sent(kinds, rows, {offset: _time(ms) for offset, ms in times.items()}, ids, bad)


def _row(kinds: Mapping[str, Type], record: Row) -> tuple[Row, list[str]]:
    row, unfit = Row(), list[str]()
    for name, kind in kinds.items():
        try:
            row[name] = stored(kind, record[name])
        except Unfit:
            unfit.append(name)
    return row, unfit


def _time(ms: int) -> datetime | None:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms) if ms <= _LAST_MS else None


def pipeline(
    flow: Flow, of: Sequence[Wire], columns: Mapping[str, Mapping[str, Type]], registry: str, batch: int
) -> Flow:
    """A table of each mode for each topic."""
    tables = [
        {
            "name": table_of(wire, mode),
            "topics": [topic],
            "auto_create": {"columns": {name: kind.text for name, kind in taken(columns[topic], mode).items()}},
            **settings,
        }
        for wire, topic in zip(of, flow.topics, strict=True)
        for mode, settings in MODES.items()
    ]
    formats = formats_of(dict(zip(flow.topics, of, strict=True)))
    return flow.but(
        registry={"main": {"url": registry}},
        extra={"source": {"formats": formats}, "tables": tables, "batch": {"max_records": batch}},
    )


def formats_of(topics: Mapping[str, Wire]) -> list[dict[str, Any]]:
    """What `source.formats` says of them."""
    return [{"topics": [topic], "value": wire.value()} for topic, wire in topics.items()]


def taken(columns: Mapping[str, Type], mode: str) -> Mapping[str, Type]:
    """The columns of a table of the mode: Spark can't write a UUID, and so can't merge one."""
    return {name: kind for name, kind in columns.items() if mode != "merge" or "uuid" not in kind.text}


def table_of(wire: Wire, mode: str) -> str:
    return f"db.{wire.name}_{mode}"


def held(flow: Flow, spark: SparkSession, wire: Wire, topic: str, sent: Sent, found: Found) -> None:
    """Hold dead letters and tables of a topic against what was sent; what is wrong goes to `found`."""
    found.records[wire.name] += len(sent.ids)
    _letters(flow, wire, topic, sent, found)
    every = {offset: row for offset, row in sent.rows.items() if row is not None}
    last = {offset: every[offset] for offset in sent.state().values()}
    for mode in MODES:
        table, wanted = table_of(wire, mode), every if mode == "append" else last
        of = replace(sent, columns=taken(sent.columns, mode))
        for reader, rows in looks(flow, spark, table, of.columns).items():
            _compared(f"{table} by {reader}", rows, of, wanted, found, plainly=reader == CLICKHOUSE)
            found.compared[reader] += len(wanted) * len(of.columns)


def looks(flow: Flow, spark: SparkSession, table: str, columns: Mapping[str, Type]) -> dict[str, list[Row]]:
    """A table's rows by reader."""
    return {
        "Spark": by_spark(spark, f"{flow.attached(spark)}.{table}", columns),
        CLICKHOUSE: by_clickhouse(flow.load_table(table), columns),
    }


def _letters(flow: Flow, wire: Wire, topic: str, sent: Sent, found: Found) -> None:
    letters = {row["offset"]: row for row in flow.rows(flow.pipeline.dead_letter_table) if row["topic"] == topic}
    found.letters[wire.name] += len(letters)
    for offset in letters.keys() ^ sent.bad.keys():
        known = letters[offset]["error"] if offset in letters else f"none, though {sent.bad[offset]} can't be stored"
        found.wrong.append(f"{topic}[{offset}]: dead letter: {known}")
    for offset in letters.keys() & sent.bad.keys():
        stage, error, names = letters[offset]["stage"], letters[offset]["error"], sent.bad[offset]
        # Half a character is no JSON: it isn't said of which field it is.
        if not (any(name in error for name in (*names, "surrogate")) if names else stage == "decode"):
            found.wrong.append(f"{topic}[{offset}]: {stage}: {error}; bad is {names}")


def _compared(
    what: str, rows: Sequence[Row], sent: Sent, wanted: Mapping[int, Row], found: Found, *, plainly: bool
) -> None:
    """`plainly`: as a reader has it that knows no null of lists, maps and structs."""
    there = {row["_kafka"]["offset"]: row for row in rows}
    if len(there) != len(rows) or there.keys() != wanted.keys():
        odd = sorted(there.keys() ^ wanted.keys())[:9]
        found.wrong.append(f"{what}: {len(rows)} rows where {len(wanted)} are to be; offsets {odd}")
    for offset in there.keys() & wanted.keys():
        given, row = there[offset], wanted[offset]
        for name, kind in sent.columns.items():
            right = as_clickhouse_has(kind, row[name]) if plainly else row[name]
            if not same(kind, given[name], right):
                found.wrong.append(f"{what}: offset {offset}: {name}: {kind.text}: {given[name]!r}, not {right!r}")
        if given["_kafka"]["timestamp"] != sent.times[offset]:
            found.wrong.append(f"{what}: offset {offset}: timestamp {given['_kafka']['timestamp']}")


def a_round(flow: Flow, parts: Parts, *, seed: int, records: int, found: Found) -> None:
    """One, of so many records of each format: a topic of `flow` for each, with one partition."""
    chance = Random(seed)
    every = wires(parts.registry)
    sent = {
        topic: send(flow, topic, wire, chance, columns=min(10, len(wire.names)), records=records)
        for wire, topic in zip(every, flow.topics, strict=True)
    }
    columns = {topic: each.columns for topic, each in sent.items()}
    # Several batches, so that changes meet rows of batches before them.
    ready = pipeline(flow, every, columns, parts.registry.url, batch=records * len(every) // 3)
    ready.run(parts.engine)
    for wire, topic in zip(every, flow.topics, strict=True):
        held(ready, parts.spark, wire, topic, sent[topic], found)

"""Records whose fields have any names: each is a column of that name, or one that no reader of Iceberg could read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from pyiceberg.types import StructType
from pyspark.sql import SparkSession

from calve.sink_core.records.decode.others import sum_dropped
from tests import support
from tests.any_values.json_wires import NAMES, PLAIN
from tests.any_values.kinds import LONG, TEXT, StructOf, Type, draw, same
from tests.any_values.readers import Row, as_clickhouse_has
from tests.any_values.values import CLICKHOUSE, MODES, Parts, Wire, formats_of, looks, table_of, wires
from tests.pipelines import Flow

RESERVED = (
    *("_pos", "_file", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)
"""Columns that Iceberg's readers have beside a table's own: https://iceberg.apache.org/spec/#reserved-field-ids."""

OURS = "_kafka"


def drawn(wire: Wire, chance: Random) -> dict[str, Type]:
    """Fields under names of which not all can be columns."""
    names = chance.sample(wire.names, k=min(7, len(wire.names)))
    # Protobuf has no two names of which one is the other with an underscore before it.
    of = chance.sample([name for name in names if not name.startswith("_")], k=3)
    twins = [chance.choice((str.upper, str.lower, str.swapcase))(name) for name in of]
    odd = [*twins, *chance.sample(RESERVED, k=2), "_POS"]
    if wire.names is NAMES:
        odd += ["", "s.t", "S.T.u"]
    every = list(dict.fromkeys([*names, *odd, "s"]))
    chance.shuffle(every)
    # A table with fields of these names is not made: the error says how to leave out Calve's own column.
    every += [OURS, OURS.upper()]
    fields: dict[str, Type] = {name: chance.choice((LONG, TEXT)) for name in every if name != "id"}
    # ClickHouse alone has no tuples with a part named null.
    inner = ["t", *chance.sample([name for name in wire.names if name != "null"], k=2), chance.choice(("T", "_pos"))]
    fields["s"] = StructOf({name: LONG if name != "t" else StructOf({"u": TEXT}) for name in dict.fromkeys(inner)})
    return {"id": LONG, **fields}


def dotted(fields: Mapping[str, Type], path: str = "") -> Iterator[str]:
    for name, kind in fields.items():
        yield f"{path}{name}"
        if isinstance(kind, StructOf):
            yield from dotted(kind.fields, f"{path}{name}.")


def may_be_missing(path: str, taken: Collection[str]) -> bool:
    """Whether no reader could tell a column of this dotted name from others, or read it.

    `taken` are the dotted names of all columns that there are.
    """
    name = path.casefold()
    while name:
        if name in {*RESERVED, OURS, *(other.casefold() for other in taken)} or name.endswith("."):
            return True
        # What is within something that may be missing.
        name = name.rpartition(".")[0]
    return not path


def columns_of(there: StructType, fields: Mapping[str, Type], path: str = "") -> tuple[dict[str, Type], list[str]]:
    """Of the fields those that a table has, and the dotted names of the others."""
    found, others = dict[str, Type](), list[str]()
    types = {field.name: field.field_type for field in there.fields}
    for name, kind in fields.items():
        if name not in types:
            others += list(dotted({name: kind}, path))
        elif isinstance(kind, StructOf):
            within = types[name]
            assert isinstance(within, StructType), f"{path}{name}: {within}"
            inner, missing = columns_of(within, kind.fields, f"{path}{name}.")
            found[name], others = StructOf(inner), others + missing
        else:
            found[name] = kind
    return found, others


def a_round(flow: Flow, parts: Parts, *, seed: int, records: int, modes: Collection[str]) -> list[str]:
    """Tables that are made from records and then given more columns, one of each mode for each format, the topics of
    `flow`; what is wrong with them."""
    chance = Random(seed)
    every = dict(zip(flow.topics, wires(parts.registry), strict=True))
    fields = {topic: drawn(wire, chance) for topic, wire in every.items()}
    tables = [
        {"name": table_of(wire, mode), "topics": [topic], "auto_create": {}, "evolve": ["add_column"], **MODES[mode]}
        for topic, wire in every.items()
        for mode in modes
    ]
    source = {"formats": formats_of(every)}
    ready = flow.but(registry={"main": {"url": parts.registry.url}}, extra={"source": source, "tables": tables})
    rows: dict[str, list[Row]] = {topic: [] for topic in every}
    dropped = dict[str, dict[str, int]]()
    for part in (1, 2):
        for topic, wire in every.items():
            kinds = {name: fields[topic][name] for name in list(fields[topic])[: len(fields[topic]) * part // 2 + 1]}
            new = [_record(kinds, chance, len(rows[topic]) + n, full=n == 0) for n in range(records)]
            # Written as usual, so that a number is not taken for one with a fraction.
            encode = wire.encoder(kinds, PLAIN)
            keys = [str(row["id"]) for row in new]
            support.produce(flow.bootstrap, topic, [encode(row) for row in new], keys=keys)
            rows[topic] += [{name: row.get(name) for name in fields[topic]} for row in new]
        dropped = sum_dropped(batch.dropped for batch in ready.run(parts.engine).batches)
    letters = [f"dead letter: {row['error']}" for row in ready.rows(ready.pipeline.dead_letter_table)]
    return letters + [
        said
        for topic, wire in every.items()
        for mode in modes
        for said in _held(ready, parts.spark, table_of(wire, mode), fields[topic], rows[topic], dropped)
    ]


def _record(kinds: Mapping[str, Type], chance: Random, number: int, *, full: bool) -> Row:
    """`full`: with a value for every field, so that all of them can be seen."""
    record = {name: _full(kind, chance) if full else draw(kind, chance) for name, kind in kinds.items()}
    return record | {"id": number}


def _full(kind: Type, chance: Random) -> Any:
    if isinstance(kind, StructOf):
        return {name: _full(of, chance) for name, of in kind.fields.items()}
    return 1 if kind is LONG else "some text"


def _held(
    flow: Flow,
    spark: SparkSession,
    table: str,
    fields: Mapping[str, Type],
    rows: Sequence[Row],
    dropped: Mapping[str, Mapping[str, int]],
) -> list[str]:
    loaded = flow.load_table(table)
    ours = {name: kind for name, kind in fields.items() if name != OURS}
    columns, others = columns_of(loaded.schema().as_struct(), ours)
    taken = list(dotted(columns))
    wrong = [f"{table}: no column {path!r}" for path in others if not may_be_missing(path, taken)]
    told = tuple(dropped.get(table, ()))
    wrong += [f"{table}: {path!r} is not counted, but {told}" for path in others if not _within(path, told)]
    for reader, found in looks(flow, spark, table, columns).items():
        there = {row["id"]: row for row in found}
        if len(found) != len(rows) or len(there) != len(rows):
            wrong.append(f"{table} by {reader}: {len(found)} rows where {len(rows)} are to be")
        for row in rows:
            for name, kind in columns.items():
                right = _part(kind, row[name])
                right = as_clickhouse_has(kind, right) if reader == CLICKHOUSE else right
                given = there.get(row["id"], {}).get(name)
                if not same(kind, given, right):
                    wrong.append(f"{table} by {reader}: id {row['id']}: {name!r}: {given!r}, not {right!r}")
    return wrong


def _part(kind: Type, value: Any) -> Any:
    """A value without what a table has no column for."""
    if isinstance(kind, StructOf) and value is not None:
        return {name: _part(of, value[name]) for name, of in kind.fields.items()}
    return value


def _within(path: str, counted: Collection[str]) -> bool:
    """Whether the field of a dotted name is counted, or one that it is in."""
    return any(path == name or path.startswith(f"{name}.") for name in counted)

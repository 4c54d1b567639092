"""Values that a producer may send to harm, decoded and transformed: numbers of huge exponents and a million digits,
deep and long values, characters that can't be seen; as values, keys, change events and lines of files.

Run as a process of its own (`python -m tests.hostile WAY SEED NUMBER`), which says what it is at: what crashes a
process can't be caught in it. `python -m tests.hostile WAY SEED NUMBER BATCH` repeats one batch.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import fastavro
import pyarrow as pa

from calve.sink_core.config.reading import KeySettings, ValueSettings
from calve.sink_core.config.tables import EvolveStep, Transform
from calve.sink_core.records.avro.decoder import AvroDecoder, OneSchema
from calve.sink_core.records.avro.schema import writer_schema
from calve.sink_core.records.changes.envelopes import Debezium
from calve.sink_core.records.changes.events import Events
from calve.sink_core.records.columns.type_text import schema_of
from calve.sink_core.records.connect.decoder import ConnectDecoder
from calve.sink_core.records.decode.decoded import Decoded
from calve.sink_core.records.json.decoder import JsonDecoder
from calve.sink_core.records.json_schema.decoder import JsonSchema, JsonSchemaDecoder, json_schema
from calve.sink_core.records.keys import KeyDecoder
from calve.sink_core.records.protobuf.decoder import ProtobufDecoder
from calve.sink_core.records.transform.transform import Transforming
from tests.unit.records.protobuf.messages import HEADER, messages
from tests.unit.source.files.reading import append, reading

BATCH = 40
TYPES = (
    *("boolean", "int", "long", "float", "double", "decimal(9,0)", "decimal(20,4)", "decimal(38,38)", "date", "time"),
    *("timestamp", "timestamptz", "string", "uuid", "fixed[4]", "binary"),
)
WITHIN = ("{}", "list<{}>", "struct<m: {}>", "map<string,{}>")
KEYS = ("decimal(9,2)", "double", "long", "timestamptz", "uuid")
STEPS: tuple[EvolveStep, ...] = ("add_column", "widen", "make_optional")
UNSEEN = (
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\0",
    "\n",
    "\r",
    "\x7f",
    "\x9b",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\U000e0001",
    "\ue000",
)
ODD = ("", "NaN", "-Infinity", "1970-01-01", "2024-05-31T12:00:00Z", "+99999-01-01", "0x1p9", "1_0", "١", "A" * 8)
_LENGTHS = (*[9] * 150, *[300] * 20, *[10_000] * 4, 1_000_000)
_LONGEST, _ONE_IN = 20_000_000, 4_000

Decode = Callable[[Sequence[bytes]], Decoded]


def length(chance: Random) -> int:
    return _LONGEST if not chance.randrange(_ONE_IN) else chance.randint(1, chance.choice(_LENGTHS))


def number(chance: Random) -> str:
    """As JSON writes one, or nearly so."""
    sign, zeros = chance.choice(("", "-", "+")[: 2 + (chance.random() < 0.1)]), "0" * chance.choice((0, 0, 0, 1, 50))
    whole = chance.choice(("0", "1", "9" * length(chance), str(chance.randrange(10**18)), "1" + "0" * length(chance)))
    fraction = chance.choice(("", "", ".5", f".{'0' * length(chance)}1", f".{'9' * length(chance)}"))
    exponent = chance.choice(("", f"{chance.choice('eE')}{chance.choice('+-')}{10 ** chance.randint(0, 12)}"))
    return f"{sign}{zeros if chance.random() < 0.1 else ''}{whole}{fraction}{exponent}"


def text(chance: Random) -> str:
    parts = (*ODD, *UNSEEN, number(chance), "a", "token", '"', "\\", "://a:", "{", "[", "é", "\N{GRINNING FACE}")
    part = chance.choice(parts)
    return part * max(1, length(chance) // max(1, len(part))) if chance.random() < 0.2 else part


def leaf(chance: Random) -> str:
    """A leaf as JSON, which may be none."""
    of = chance.randrange(8)
    if of < 3:
        return number(chance)
    if of < 6:
        return json.dumps(text(chance), ensure_ascii=chance.random() < 0.5)
    return chance.choice(("null", "true", "NaN", "Infinity", "[]", "{}", f'"{number(chance)}"', '"\\ud800"', "\0"))


def nested(chance: Random) -> str:
    within = leaf(chance)
    if chance.random() < 0.7:
        return chance.choice(("{}", "[{}]", '{{"m":{}}}', '{{"k":{}}}')).format(within)
    opening, closing = chance.choice((("[", "]"), ('{"m":', "}"), ('[{"k":', "}]")))
    depth = min(length(chance), 200_000)
    return f"{opening * depth}{within}{closing * (depth - (chance.random() < 0.1))}"


def name(chance: Random) -> str:
    return json.dumps(chance.choice(("a", "a", "a", "b", text(chance), number(chance))))


def record(chance: Random) -> bytes:
    members = (f"{name(chance)}:{nested(chance)}" for _ in range(chance.choice((1, 1, 2, 5))))
    value = f"{{{','.join(members)}}}".encode(errors="replace")
    return value[: chance.randint(0, len(value))] if chance.random() < 0.02 else value


def of_json(chance: Random) -> tuple[Decode, list[bytes]]:
    kind = chance.choice((*TYPES, *(f"map<{key}, long>" for key in KEYS)))
    decoder = JsonDecoder(schema_of({"a": chance.choice(WITHIN).format(kind)}), STEPS if chance.random() < 0.3 else ())
    return decoder.decode, [record(chance) for _ in range(BATCH)]


def of_connect(chance: Random) -> tuple[Decode, list[bytes]]:
    kind, wanted = chance.choice(
        (("string", "string"), ("double", "double"), ("bytes", "decimal(20,4)"), ("int64", "long"))
    )
    scale = chance.choice(("0", "4", "43", str(10 ** chance.randint(0, 12)), "-9"))
    of = {"type": kind, "field": "a", "optional": True}
    if kind == "bytes":
        of |= {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    schema = json.dumps({"type": "struct", "optional": False, "fields": [of]})
    values = [f'{{"schema":{schema},"payload":'.encode() + record(chance) + b"}" for _ in range(BATCH)]
    return ConnectDecoder(schema_of({"a": wanted})).decode, values


def of_avro(chance: Random) -> tuple[Decode, list[bytes]]:
    scale = chance.choice((0, 4, 38, 43, 10 ** chance.randint(0, 12)))
    of = chance.choice(
        (
            {"type": "bytes", "logicalType": "decimal", "precision": max(1, scale), "scale": scale},
            *("bytes", "string", "double", "long"),
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "array", "items": "string"},
        )
    )
    fields = {"type": "record", "name": "R", "fields": [{"name": "a", "type": of}]}
    written = writer_schema("s", json.dumps(fields))
    values = [chance.randbytes(min(length(chance), 100_000)) for _ in range(BATCH // 2)]
    for _ in range(BATCH // 2):
        out = io.BytesIO()
        plain = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "bytes"}]}
        fastavro.schemaless_writer(out, plain, {"a": text(chance).encode(errors="replace")})
        values.append(out.getvalue())
    return AvroDecoder(schema_of({"a": chance.choice(TYPES)}), OneSchema(written)).decode, values


def of_transform(chance: Random) -> tuple[Decode, list[bytes]]:
    wanted = schema_of({"b": chance.choice(TYPES[:13])})
    kind = str(wanted.fields[0].field_type)
    kind = {"long": "bigint", "string": "varchar"}.get(kind, kind)
    transform = Transform(columns={"a": "string"}, select=f"CAST(a AS {kind}) AS b")
    decoder, through = JsonDecoder(schema_of({"a": "string"})), Transforming(transform, wanted, table="t")
    values = [f'{{"a":{json.dumps(text(chance))}}}'.encode() for _ in range(BATCH)]
    return lambda given: through.apply(decoder.decode(given), lambda places: pa.nulls(len(places))), values


class OneSchema7:
    """A registry whose only schema is that of id 7, which says nothing."""

    header_bytes = 5

    def writer_of(self, value: bytes) -> JsonSchema:
        if value[:5] != HEADER:
            raise ValueError("no such schema")
        return json_schema("schema id 7", "{}")


def of_json_schema(chance: Random) -> tuple[Decode, list[bytes]]:
    kind = chance.choice(WITHIN).format(chance.choice(TYPES))
    decoder = JsonSchemaDecoder(schema_of({"a": kind}), OneSchema7(), STEPS if chance.random() < 0.3 else ())
    return decoder.decode, [(HEADER if chance.random() < 0.95 else HEADER[:3]) + record(chance) for _ in range(BATCH)]


FIELDS_OF_ORDER = (
    "id",
    "big",
    "f",
    "d",
    "yes",
    "text",
    "raw",
    "colour",
    "at",
    "took",
    "wrapped",
    "tags",
    "sizes",
    "home",
)
_WIRES = (b"\0", b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x07")


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(chance: Random, depth: int = 0) -> bytes:
    """Fields of any number and wire type, as Protobuf writes them, or nearly so."""
    out = b""
    for _ in range(chance.choice((0, 1, 3, 20))):
        wire = chance.randrange(8)
        out += varint(chance.choice((*range(1, 24), 0, 2**29 - 1, 2**29)) << 3 | wire)
        if wire == 0:
            out += varint(chance.choice((0, 1, 2**31, 2**63, 2**64 - 1, 2**70)))
        elif wire == 2:
            within = (
                message(chance, depth + 1)
                if depth < 80 and chance.random() < 0.5
                else text(chance).encode(errors="replace")
            )
            out += (
                varint(chance.choice((len(within), len(within), len(within), len(within) + 1, 2**31, 2**63))) + within
            )
        else:
            out += chance.randbytes({1: 8, 5: 4}.get(wire, 0))
    return out


def of_protobuf(chance: Random) -> tuple[Decode, list[bytes]]:
    kind = chance.choice(WITHIN).format(chance.choice(TYPES))
    decoder = ProtobufDecoder(schema_of({chance.choice(FIELDS_OF_ORDER): kind}), messages(), ())
    index = chance.choice((b"\x02\x02", b"\0", b"\x04\0\0", chance.choice(_WIRES), varint(2**70)))
    return decoder.decode, [HEADER + index + message(chance) for _ in range(BATCH)]


def of_keys(chance: Random) -> tuple[Decode, list[bytes]]:
    kind, of = chance.choice(TYPES[:13]), chance.choice(("json", "string", "bytes"))
    kind = {"string": "string", "bytes": "binary"}.get(of, chance.choice((kind, f"struct<a: {kind}>")))
    decoder = KeyDecoder(KeySettings(ValueSettings(of), kind))

    def decode(keys: Sequence[bytes]) -> Decoded:
        array, good, bad = decoder.decode(keys)
        return Decoded(pa.RecordBatch.from_arrays([array], ["key"]), list(good), bad)

    values = (leaf(chance).encode(errors="replace") if chance.random() < 0.6 else record(chance) for _ in range(BATCH))
    return decode, list(values)


def of_events(chance: Random) -> tuple[Decode, list[bytes]]:
    columns = {"id": "long", "a": chance.choice(WITHIN).format(chance.choice(TYPES))}
    events = Events(Debezium(), schema_of(columns), ["id"], table="t", ignores_truncate=True)
    decoder = JsonDecoder(events.schema)

    def row() -> str:
        return chance.choice(
            ("null", leaf(chance), *[f'{{"id":{chance.choice(("1", leaf(chance)))},"a":{nested(chance)}}}'] * 6)
        )

    def event() -> bytes:
        op = chance.choice(("c", "r", "u", "d", "m", "t", text(chance)))
        return f'{{"before":{row()},"after":{row()},"op":{json.dumps(op)},"ts_ms":{number(chance)}}}'.encode(
            errors="replace"
        )

    def decode(values: Sequence[bytes]) -> Decoded:
        found = events.judge(decoder.decode(values))
        events.meant(found.columns)
        return found

    return decode, [event() for _ in range(BATCH)]


def of_files(kind: str) -> Callable[[Random], tuple[Decode, list[bytes]]]:
    def of(chance: Random) -> tuple[Decode, list[bytes]]:
        def cell() -> str:
            return chance.choice((text(chance), number(chance), f'"{text(chance)}"', f'"{text(chance)}'))

        def line() -> bytes:
            if kind == "csv":
                return ",".join(cell() for _ in range(chance.choice((2, 2, 2, 1, 5)))).encode(errors="replace")
            return record(chance)

        def decode(values: Sequence[bytes]) -> Decoded:
            with TemporaryDirectory() as folder:
                file, source = Path(folder) / "a", reading(folder, kind, key=["a"] if chance.random() < 0.3 else [])
                append(file, b"\n".join([*([b"a,b"] if kind == "csv" else []), *values, b""]), settled=True)
                while source.read():
                    pass
            return Decoded(pa.RecordBatch.from_pylist([{"a": 0}] * len(values)), None, ())

        return decode, [line() for _ in range(BATCH)]

    return of


WAYS = {
    "json": of_json,
    "connect": of_connect,
    "avro": of_avro,
    "transform": of_transform,
    "json_schema": of_json_schema,
    "protobuf": of_protobuf,
    "keys": of_keys,
    "events": of_events,
    "json_lines": of_files("json_lines"),
    "csv": of_files("csv"),
}


def run(way: str, seed: int, total: int, only: int | None = None) -> None:
    for batch in range(-(-total // BATCH)) if only is None else [only]:
        print(f"{way} {seed} {total} {batch}", flush=True)  # noqa: T201 - what the parent names
        decode, values = WAYS[way](Random(f"{seed} {batch}"))
        found = decode(values)
        found.columns.validate(full=True)
        good = list(range(len(values))) if found.good is None else found.good
        known = sorted([*good, *(bad.index for bad in found.bad)])
        # Of change events some say nothing of rows.
        assert known == list(range(len(values))) if way != "events" else len(set(known)) == len(known)
        assert len(found.columns) == len(good)
        assert all(len(bad.message) <= 200 and bad.message.isprintable() for bad in found.bad)


if __name__ == "__main__":
    run(sys.argv[1], *map(int, sys.argv[2:]))

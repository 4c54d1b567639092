"""JSON within the envelope that Kafka Connect's JsonConverter writes with `schemas.enable`, to columns of a table.

The envelope's schema says what a payload's numbers and texts mean. It is the same text in record after record, so what
is made of it is made once, and the payloads are read together, as JSON is. Where the schema is `null` the payload is
read as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.schema import Schema

from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.records.columns.names import ALL, EXACT, UNCOUNTED, Names
from calve.sink_core.records.connect.columns import connect_columns
from calve.sink_core.records.connect.envelope import Envelope, opened, plain
from calve.sink_core.records.connect.schema import ConnectType, connect_type
from calve.sink_core.records.connect.types import (
    Carriers,
    Leaf,
    exactly,
    from_connect,
    read_as,
    read_as_numbers,
    to_column,
)
from calve.sink_core.records.decode.asking import asking_columns
from calve.sink_core.records.decode.convert import Converter
from calve.sink_core.records.decode.decoded import DECODE, FIT, BadValue, Decoded, Decoder, cut, in_order, placed
from calve.sink_core.records.json.decoder import JsonDecoder

_NOTHING = "the payload is null: there is nothing to store"
_MOST_SCHEMAS = 1000
"""So many are kept; records that have a schema each would fill the memory."""
_MOST_PREFIXES = 8
_SPACE = b" \t\r\n"


@dataclass(slots=True)
class _Group:
    """Payloads of one schema, with their places among the values."""

    places: list[int] = field(default_factory=list[int])
    payloads: list[bytes] = field(default_factory=list[bytes])


class ConnectDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`), `steps`
    says what the table may be given: what the envelopes' schemas ask for.
    """

    def __init__(self, schema: Schema, steps: Collection[EvolveStep] = (), names: Names = EXACT) -> None:
        self._schema, self._names = schema, names
        self._asking = asking_columns(schema, steps, connect_columns, names)
        self._schemaless = JsonDecoder(schema, (), names)
        self._decoders: dict[bytes, tuple[Decoder, ConnectType | None] | str] = {}
        self._prefixes: list[tuple[bytes, bytes]] = []

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        return self._asking.told(self._decoded(values))

    def _decoded(self, values: Sequence[bytes]) -> Decoded:
        bad: dict[int, BadValue] = {}
        groups = self._grouped(values, bad)
        pieces = [([], self._schemaless.decode([]).columns)]
        dropped = Counter[str]()
        for text, group in groups.items():
            found = self._decoder(text)
            if isinstance(found, str):
                bad |= {place: BadValue(place, DECODE, cut(found)) for place in group.places}
                continue
            decoder, kind = found
            if kind is not None and (why := self._asking.take(kind, len(group.places))):
                bad |= {place: BadValue(place, FIT, why) for place in group.places}
                continue
            if len(groups) == 1 and not bad:
                return decoder.decode(group.payloads)
            decoded = placed(decoder.decode(group.payloads), group.places, {})
            dropped.update(decoded.dropped)
            bad |= {verdict.index: verdict for verdict in decoded.bad}
            pieces.append((decoded.good or [], decoded.columns))
        good, columns = in_order(pieces)
        return Decoded(columns, good, tuple(bad[place] for place in sorted(bad)), dropped=dropped)

    def _grouped(self, values: Sequence[bytes], bad: dict[int, BadValue]) -> dict[bytes, _Group]:
        """The payloads by the texts of their schemas; what isn't an envelope, or has nothing in it, goes to `bad`."""
        groups: dict[bytes, _Group] = {}
        for place, value in enumerate(values):
            try:
                text, payload = self._opened(value)
                if payload == b"null":
                    raise ValueError(_NOTHING)
            except (ValueError, RecursionError) as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
                continue
            group = groups.get(text) or groups.setdefault(text, _Group())
            group.places.append(place)
            group.payloads.append(payload)
        return groups

    def _opened(self, value: bytes) -> tuple[bytes, bytes]:
        """Schema and payload. Raises ValueError or RecursionError."""
        for i, (prefix, schema) in enumerate(self._prefixes):
            if value.startswith(prefix) and value.endswith(b"}"):
                if i:
                    self._prefixes.insert(0, self._prefixes.pop(i))
                # What else might stand between is no JSON object, and so a matter of the payload's reader.
                return schema, value[len(prefix) : -1].strip(_SPACE)
        envelope = opened(value)
        if envelope.prefix is not None:
            self._prefixes = [(envelope.prefix, envelope.schema), *self._prefixes[: _MOST_PREFIXES - 1]]
        return envelope.schema, envelope.payload

    def _decoder(self, text: bytes) -> tuple[Decoder, ConnectType | None] | str:
        """What reads payloads of a schema, and what that is if it is none, or what is wrong with the schema."""
        found = self._decoders.get(text)
        if found is None:
            if len(self._decoders) >= _MOST_SCHEMAS:
                self._decoders.clear()
            found = self._decoders[text] = self._made(text)
        return found

    def _made(self, text: bytes) -> tuple[Decoder, ConnectType | None] | str:
        try:
            kind = payload_type(text)
        except ValueError as error:
            return str(error)
        if kind is None:
            return self._schemaless, None
        return _PayloadDecoder(kind, self._schema, self._names), kind


def payload_type(text: bytes) -> ConnectType | None:
    """The struct that payloads of a schema are, None for a schema that is null. Raises ValueError for anything else."""
    given = json.loads(text)
    kind = None if given is None else connect_type(given)
    if kind is not None and kind.kind != "struct":
        raise ValueError(f"the payload is {kind.kind}, not a struct")
    return kind


def widest_type(values: Sequence[bytes]) -> ConnectType | None:
    """The struct with the most fields among the envelopes' schemas; None if no value has one."""
    found: dict[bytes, ConnectType] = {}
    for value in values:
        try:
            envelope: Envelope = opened(value)
            kind = found.get(envelope.schema) or payload_type(envelope.schema)
        except (ValueError, RecursionError):
            continue
        if kind is not None:
            found[envelope.schema] = kind
    return max(found.values(), key=lambda kind: len(kind.fields), default=None)


class _Way:
    """How payloads are read if their decimals stand in one of the two forms: as JSON, then what each leaf is exactly,
    then as the table wants it."""

    def __init__(self, kind: ConnectType, schema: Schema, leaf: Leaf, names: Names) -> None:
        exact = Carriers(exactly, names).schema(kind, schema)
        # What the table lacks is counted by the schema.
        names = UNCOUNTED if names.exact else replace(names, ignored=(ALL,))
        self._json = JsonDecoder(Carriers(leaf, names).schema(kind, schema), (), names)
        self._steps = (Converter(exact, from_connect), Converter(schema, to_column))

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        decoded = self._json.decode(payloads)
        columns, bad = decoded.columns, list(decoded.bad)
        good = list(range(len(payloads))) if decoded.good is None else decoded.good
        for step in self._steps:
            columns, misfits = step.convert(columns)
            bad += [BadValue(good[row], FIT, cut(text)) for row, text in misfits.items()]
            good = [place for row, place in enumerate(good) if row not in misfits] if misfits else good
        return Decoded(columns, good if bad else None, tuple(sorted(bad, key=lambda verdict: verdict.index)))


class _PayloadDecoder:
    """Decodes the payloads of one schema for one table."""

    def __init__(self, kind: ConnectType, schema: Schema, names: Names) -> None:
        self._kind = kind
        carriers = Carriers(exactly, names)
        carriers.schema(kind, schema)
        # Reading fields under other names takes long; most schemas have none.
        names = names if carriers.renamed else EXACT
        self._misfit = "; ".join(carriers.misfits)
        self._empty = JsonDecoder(schema).decode([]).columns
        kinds = list(kind.within())
        self._has_pairs = any(part.key is not None and part.key.kind != "string" for part in kinds)
        leaves = (read_as, read_as_numbers) if any(part.kind == "decimal" for part in kinds) else (read_as,)
        self._ways = [] if self._misfit else [_Way(kind, schema, leaf, names) for leaf in leaves]

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`."""
        if self._misfit:
            return Decoded(self._empty, [], tuple(BadValue(i, FIT, cut(self._misfit)) for i in range(len(values))))
        bad: dict[int, BadValue] = {}
        payloads = self._plain(values, bad)
        if not bad:
            return self._in_one_way(payloads)
        places = [place for place in range(len(values)) if place not in bad]
        return placed(self._in_one_way([payloads[place] for place in places]), places, bad)

    def _plain(self, values: Sequence[bytes], bad: dict[int, BadValue]) -> list[bytes]:
        if not self._has_pairs:
            return list(values)
        written: list[bytes] = []
        for place, value in enumerate(values):
            try:
                written.append(plain(value, self._kind))
            except (ValueError, RecursionError) as error:
                bad[place] = BadValue(place, DECODE, cut(str(error)))
                written.append(b"")
        return written

    def _in_one_way(self, payloads: Sequence[bytes]) -> Decoded:
        """A converter writes all its decimals in one form: what doesn't fit is tried in the other one as well."""
        decoded = self._ways[0].decode(payloads)
        if not decoded.bad or len(self._ways) == 1:
            return decoded
        places = [verdict.index for verdict in decoded.bad]
        other = placed(self._ways[1].decode([payloads[place] for place in places]), places, {})
        if not other.good:
            return decoded
        if len(other.good) > len(places) // 2:
            self._ways.reverse()
        still = set(other.good)
        first = list(range(len(payloads))) if decoded.good is None else decoded.good
        good, columns = in_order([(first, decoded.columns), (other.good, other.columns)])
        return Decoded(columns, good, tuple(verdict for verdict in decoded.bad if verdict.index not in still))

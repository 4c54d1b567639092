"""JSON objects, one a record, decoded straight to Arrow columns typed by an Iceberg schema.

Many records are parsed as one block (`block`). Where a block fails it is cut down, in the end to single records, and
the verdict on a single record decides: what becomes of a record doesn't depend on its neighbours.

What a record may hold: numbers, strings, booleans, objects and lists for the Iceberg types of the same nature; decimals
as number or string; maps as objects (`maps`); the rest as text (`text`). Nothing is rounded or coerced: `1.5` and `"1"`
are errors for a long, `1.255` is one for decimal(5, 2). The exception is what JSON numbers for float and double always
mean: the nearest value, with NaN and Infinity accepted and anything beyond the type's range an error. Fields the schema
doesn't have are ignored, missing ones are null, names match exactly. A number beyond double's range is an error
wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema

from sink_core.decode.block import UNFRAMED, framed, join, only_batch, parsed_schema, read, stripped
from sink_core.decode.convert import Converter, from_json
from sink_core.decode.decoded import DECODE, FIT, BadValue, Decoded, cut, in_order
from sink_core.decode.maps import has_maps, with_entries
from sink_core.decode.misfit import UNREADABLE, misfit
from sink_core.tables.arrow import file_schema

# Up to this many records, looking at each is cheaper than parsing halves again.
_LOOK_CLOSER = 128
_PLACE = re.compile(r"^JSON parse error: | in row \d+")
_UNNAMED = "Failed to convert JSON"
_MAYBE_TOO_DEEP = (ValueError, RecursionError)


@dataclass(slots=True)
class _Sifted:
    """Parsed batches with the places of their rows among the values, and what is bad, by place."""

    pieces: list[tuple[list[int], pa.RecordBatch]] = field(default_factory=list[tuple[list[int], pa.RecordBatch]])
    bad: dict[int, BadValue] = field(default_factory=dict[int, BadValue])


class JsonDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`)."""

    def __init__(self, schema: Schema) -> None:
        self._wanted = schema.as_struct()
        self._parsed = parsed_schema(file_schema(schema))
        self._converter = Converter(schema, from_json)
        self._rewrites = has_maps(schema)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode `values`; a bad one is reported with its index and doesn't touch the others."""
        at_once = self._at_once(values)
        places, bad = range(len(values)), dict[int, BadValue]()
        if at_once is None:
            sifted = self._sift_all(values)
            (places, at_once), bad = in_order(sifted.pieces), sifted.bad
        columns, misfits = self._converter.convert(at_once)
        bad |= {places[row]: BadValue(places[row], FIT, _shown(text)) for row, text in misfits.items()}
        good = [place for place in places if place not in bad] if bad else None
        return Decoded(columns, good, tuple(bad[place] for place in sorted(bad)))

    def _at_once(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """All values parsed as one block, or None if that can't be."""
        if not values:
            return self._nothing()
        block = join(values)
        if self._rewrites or not framed(values, block).all():
            return None
        try:
            return read(block, len(values), self._parsed)
        except ValueError:
            return None

    def _nothing(self) -> pa.RecordBatch:
        return only_batch(self._parsed.empty_table())

    def _sift_all(self, values: Sequence[bytes]) -> _Sifted:
        sifted = _Sifted([([], self._nothing())])
        stripped_values = [stripped(value) for value in values]
        frames = framed(stripped_values, join(stripped_values))
        parsable: dict[int, bytes] = {}
        for place, value in enumerate(stripped_values):
            try:
                if not frames[place]:
                    raise ValueError(UNFRAMED)
                parsable[place] = with_entries(value, self._wanted) if self._rewrites else value
            except _MAYBE_TOO_DEEP as error:
                sifted.bad[place] = BadValue(place, DECODE, _shown(str(error)))
        self._sift(list(parsable), list(parsable.values()), sifted)
        return sifted

    def _sift(self, places: list[int], values: list[bytes], sifted: _Sifted) -> None:
        if not values:
            return
        try:
            sifted.pieces.append((places, read(join(values), len(values), self._parsed)))
        except ValueError as error:
            if len(values) == 1:
                sifted.bad[places[0]] = self._verdict(places[0], values[0], error)
                return
            for part in self._parts(values):
                self._sift([places[i] for i in part], [values[i] for i in part], sifted)

    def _parts(self, values: list[bytes]) -> Iterator[Sequence[int]]:
        """How to cut values that fail together, by index: each suspect alone, if there are any."""
        n = len(values)
        if n > _LOOK_CLOSER:
            yield from (range(start, min(start + _LOOK_CLOSER, n)) for start in range(0, n, _LOOK_CLOSER))
            return
        suspects = [i for i, value in enumerate(values) if misfit(value, self._wanted)]
        if not suspects:
            yield from (range(n // 2), range(n // 2, n))
            return
        if len(suspects) < n:
            yield sorted(set(range(n)) - set(suspects))
        yield from ([i] for i in suspects)

    def _verdict(self, place: int, value: bytes, error: Exception) -> BadValue:
        try:
            read(value, 1, pa.schema([]))
        except ValueError as broken:
            return BadValue(place, DECODE, _shown(str(broken)))
        text = str(error)
        if text.startswith(_UNNAMED):
            text = f"{misfit(value, self._wanted) or UNREADABLE}: {text}"
        return BadValue(place, FIT, _shown(text))


def _shown(error: str) -> str:
    return cut(_PLACE.sub("", error))

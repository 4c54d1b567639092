"""JSON objects, one a record, decoded straight to Arrow columns typed by an Iceberg schema.

Many records are parsed as one block (`block`). Where a block fails it is cut down, in the end to single records, and
the verdict on a single record decides: what becomes of a record doesn't depend on its neighbours.

What a record may hold: numbers, strings, booleans, objects and lists for the Iceberg types of the same nature; decimals
as number or string; maps as objects (`maps`); the rest as text (`text`). Nothing is rounded or coerced: `1.5` and `"1"`
are errors for a long, `1.255` is one for decimal(5, 2). The exception is what JSON numbers for float and double always
mean: the nearest double, and the float that is nearest to it, with NaN and Infinity accepted, as the texts `"NaN"`,
`"Infinity"` and `"-Infinity"` too, and anything beyond the type's range an error. Fields the schema doesn't have are
ignored, missing ones are null, names match exactly unless the table has others (`names`). A number beyond double's
range is an error wherever it stands.

The parser shows what else is in a block, at little cost (`others`): it is counted. For a table that may be given
columns what else there is, or does not fit, is looked at closely (`wants`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core import compiled
from calve.sink_core.config.tables import EvolveStep
from calve.sink_core.packed import packed, taken
from calve.sink_core.records.columns.arrow import file_schema
from calve.sink_core.records.columns.evolution import beyond, room
from calve.sink_core.records.columns.names import EXACT, Names, TwoOfOne
from calve.sink_core.records.decode.bisection import Part, bisect, halves
from calve.sink_core.records.decode.convert import Converter, from_json
from calve.sink_core.records.decode.decoded import DECODE, FIT, BadValue, Decoded, cut, in_order
from calve.sink_core.records.decode.decoded import sifted as without
from calve.sink_core.records.decode.maps import has_maps, with_entries, with_plain_numbers
from calve.sink_core.records.decode.misfit import UNREADABLE, misfit
from calve.sink_core.records.decode.others import counted, looked_for, may_be_shown, others_in, says_something
from calve.sink_core.records.json.block import UNFRAMED, framed, join, only_batch, parsed_schema, read, stripped
from calve.sink_core.records.json.wants import Wants, fields_beyond

if TYPE_CHECKING:
    from calve.sink_core.records.json.table import Table

# With more suspects than this share of the records the kernel is not tried again for so many batches.
_MANY_SUSPECTS = 0.1
_BATCHES_WITHOUT = 32
# Up to this many records, looking at each is cheaper than parsing halves again.
_LOOK_CLOSER = 128
_PLACE = re.compile(r"^JSON parse error: | in row \d+")
_COLUMN = re.compile(r"^Column\(/(.*?)\) (?:changed from (\w+) to (\w+)|(.*))$")
_UNNAMED = "Failed to convert JSON"
_UNPARSED = re.compile(rf"{_UNNAMED} to (\S+), couldn't parse:\s*(.*)$")
_TYPES = {"int32": "int", "int64": "long"}
"""Those of a table, by the parser's names."""
_OTHER_NAMES = "fields under other names"
_MAYBE_TOO_DEEP = (ValueError, RecursionError)


_Piece = tuple[Sequence[int], pa.RecordBatch]


@dataclass(slots=True)
class _Sifted:
    """Parsed batches of `values` with the places of their rows among these, and what is bad, by place. `news` are the
    places of records among which some have fields that the table lacks, `others` such fields; `dropped` counts them.
    """

    values: Sequence[bytes]
    pieces: list[_Piece] = field(default_factory=lambda: list[_Piece]())
    bad: dict[int, BadValue] = field(default_factory=dict[int, BadValue])
    news: list[int] = field(default_factory=list[int])
    others: set[str] = field(default_factory=set[str])
    dropped: Counter[str] = field(default_factory=Counter[str])

    def at(self, places: Sequence[int]) -> Sequence[bytes]:
        """The values at places that have no two alike."""
        return self.values if len(places) == len(self.values) else taken(self.values, places)

    def add(self, more: _Sifted, places: Sequence[int]) -> None:
        """Add what became of the values at `places`."""
        self.pieces += [([places[i] for i in part], rows) for part, rows in more.pieces]
        self.bad |= {places[i]: replace(bad, index=places[i]) for i, bad in more.bad.items()}
        self.news += [places[i] for i in more.news]
        self.others |= more.others
        self.dropped.update(more.dropped)


class JsonDecoder:
    """Decodes records for one table. `schema` is the table's without what isn't read from the value (`_kafka`), `steps`
    says what the table may be given."""

    def __init__(self, schema: Schema, steps: Collection[EvolveStep] = (), names: Names = EXACT) -> None:
        self._struct = schema.as_struct()
        self._parsed = parsed_schema(file_schema(schema))
        self._converter = Converter(schema, from_json)
        self._rewrites = has_maps(schema)
        self._wants = Wants(schema, steps, names) if steps else None
        self._adds, self._names = "add_column" in steps, names
        self._room = room(steps, schema)
        self._rewrites_rest = self._rewrites or not names.exact
        # What was looked at and is no column.
        self._passed_over: set[str] = set()
        self._table: Table | None = None
        self._is_for_kernel = not self._rewrites_rest
        self._seen = self._waits = 0

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode `values`; a bad one is reported with its index and doesn't touch the others."""
        sifted = self._by_kernel(values) or self._at_once(values) or self._sift_all(values)
        bad = sifted.bad
        places, parsed = sifted.pieces[0] if len(sifted.pieces) == 1 else in_order(sifted.pieces)
        columns, misfits = self._converter.convert(parsed)
        bad |= {places[row]: BadValue(places[row], FIT, _shown(text)) for row, text in misfits.items()}
        good = [place for place in places if place not in bad] if bad else None
        wanted = self._wanted(values, sifted) if self._wants and (sifted.news or bad) else None
        decoded = Decoded(columns, good, tuple(bad[place] for place in sorted(bad)), wanted, sifted.dropped)
        lack = self._room is not None and (sifted.dropped or sifted.others or sifted.news)
        return self._without_beyond(values, decoded, self._room) if lack and self._room is not None else decoded

    def _without_beyond(self, values: Sequence[bytes], decoded: Decoded, room: int) -> Decoded:
        """The same without records that need more columns than the table may be given, which are bad."""
        places = range(len(values)) if decoded.good is None else decoded.good
        unfit = dict[int, str]()
        for row, place in enumerate(places):
            if lacking := fields_beyond(values[place], self._struct, self._names, room):
                unfit[row] = beyond(lacking, room)
        return without(decoded, unfit)

    def _wanted(self, values: Sequence[bytes], sifted: _Sifted) -> Schema | None:
        """What records with other fields, and those that don't fit, need of the table."""
        unfit = (value.index for value in sifted.bad.values() if value.stage == FIT)
        places = sorted({*sifted.news, *unfit})
        wanted = self._wants.of(values[i] for i in places) if self._wants else None
        if wanted is None and not sifted.bad:
            self._passed_over |= sifted.others
        return wanted

    def _by_kernel(self, values: Sequence[bytes]) -> _Sifted | None:
        """What the kernel reads, and what becomes of the others; None if it is not for these values."""
        self._seen += len(values)
        self._waits = max(0, self._waits - 1)
        if self._waits or not values or not self._has_table():
            return None
        assert self._table is not None
        together = packed(values)
        found = self._table.read(together)
        suspects = np.flatnonzero(found.suspect)
        others = Counter({name: n for name, n in found.others.items() if self._names.counts(name)})
        # What the table may be given is looked for with the parser.
        if len(suspects) > len(values) * _MANY_SUSPECTS or (self._adds and found.others):
            self._waits = _BATCHES_WITHOUT
            return None
        places = np.flatnonzero(~found.suspect).tolist() if len(suspects) else range(len(values))
        sifted = _Sifted(values, [(places, found.rows)], dropped=others)
        if len(suspects):
            sifted.add(self._sift_all(taken(values, suspects)), suspects.tolist())
        return sifted

    def _has_table(self) -> bool:
        """Whether the kernel is there, and reads records of this schema."""
        if self._table is None and self._is_for_kernel and compiled.usable(compiled.JSON, self._seen):
            from calve.sink_core.records.json.table import table

            self._table = table(self._parsed)
            self._is_for_kernel = self._table is not None
        return self._table is not None

    def _at_once(self, values: Sequence[bytes]) -> _Sifted | None:
        """All values parsed as one block, or None if that can't be."""
        sifted, places = _Sifted(values), range(len(values))
        if not values:
            sifted.pieces.append((places, self._nothing()))
            return sifted
        block = join(values)
        if self._rewrites or not framed(values, block).all():
            return None
        try:
            sifted.pieces.append((places, self._read(places, block, sifted)))
        except ValueError:
            return None
        return sifted

    def _read_rest(self, places: Sequence[int], block: bytes, sifted: _Sifted) -> pa.RecordBatch:
        """As `_read`, of values that may have been rewritten: then they have no other fields."""
        return read(block, len(places), self._parsed) if self._rewrites_rest else self._read(places, block, sifted)

    def _read(self, places: Sequence[int], block: bytes, sifted: _Sifted) -> pa.RecordBatch:
        """The rows of the block; if it has fields that the table lacks, its places are noted. Raises ValueError."""
        names, counts = self._names, self._names.count
        if not self._adds and not counts and names.exact:
            return read(block, len(places), self._parsed)
        try:
            if not may_be_shown(sifted.at(places), self._struct, names):
                raise ValueError(_OTHER_NAMES)
            found = read(block, len(places), self._parsed, others=True)
        except ValueError:
            if not names.exact:
                raise
            # Another field may have several types; that says nothing about what the table asks for.
            return self._read_apart(places, block, sifted)
        if found.schema.equals(self._parsed):
            return found
        others = others_in(found, self._parsed)
        if any(names.may_be_other(name.rpartition(".")[2]) for name, _ in others):
            raise ValueError(_OTHER_NAMES)
        new = {name for name, of in others if says_something(of.type) and names.asks(name)} - self._passed_over
        if new and self._adds:
            sifted.others |= new
            sifted.news += places
        ours = found.select(self._parsed.names)
        ours = ours if ours.schema.equals(self._parsed) else read(block, len(places), self._parsed)
        sifted.dropped.update(counted(others, names))
        return ours

    def _read_apart(self, places: Sequence[int], block: bytes, sifted: _Sifted) -> pa.RecordBatch:
        """The rows of the block, what else there is looked for record by record. Raises ValueError."""
        rows = read(block, len(places), self._parsed)
        sifted.news += places if self._adds else ()
        if self._names.count:
            sifted.dropped.update(looked_for(sifted.at(places), self._struct, self._names))
        return rows

    def _nothing(self) -> pa.RecordBatch:
        return only_batch(self._parsed.empty_table())

    def _sift_all(self, values: Sequence[bytes]) -> _Sifted:
        sifted = _Sifted(values, [([], self._nothing())])
        stripped_values = [stripped(value) for value in values]
        frames = framed(stripped_values, join(stripped_values))
        parsable: dict[int, bytes] = {}
        for place, value in enumerate(stripped_values):
            try:
                if not frames[place]:
                    raise ValueError(UNFRAMED)
                rewritten = self._rewrites_rest
                parsable[place] = with_entries(value, self._struct, self._names) if rewritten else value
            except TwoOfOne as error:
                sifted.bad[place] = BadValue(place, FIT, _shown(str(error)))
            except _MAYBE_TOO_DEEP as error:
                sifted.bad[place] = BadValue(place, DECODE, _shown(str(error)))
        self._sift(list(parsable), list(parsable.values()), sifted)
        if self._rewrites_rest:
            # Other fields were left out before the parser could show them.
            sifted.news = list(parsable) if self._adds else []
            if self._names.count:
                good = (values[place] for place in parsable if place not in sifted.bad)
                sifted.dropped = looked_for(good, self._struct, self._names)
        return sifted

    def _sift(self, places: list[int], values: list[bytes], sifted: _Sifted) -> None:
        def attempt(part: Part) -> pa.RecordBatch:
            here = [values[i] for i in part]
            try:
                return self._read_rest([places[i] for i in part], join(here), sifted)
            except ValueError:
                if len(part) > _LOOK_CLOSER or not (plain := self._plain(here)):
                    raise
                for i, value in zip(part, plain, strict=True):
                    values[i] = value
                return self._read_rest([places[i] for i in part], join(plain), sifted)

        made, unfit = bisect(len(values), attempt, ValueError, lambda part: self._parts(part, values))
        sifted.pieces += [([places[i] for i in part], rows) for part, rows in made]
        sifted.bad |= {places[i]: self._verdict(places[i], values[i], error) for i, error in unfit.items()}

    def _plain(self, values: list[bytes]) -> list[bytes]:
        """The values with numbers as the parser takes them; none if nothing is to be written anew."""
        try:
            written = [with_plain_numbers(value, self._struct) for value in values]
        except _MAYBE_TOO_DEEP:
            return []
        return [new or old for new, old in zip(written, values, strict=True)] if any(written) else []

    def _parts(self, part: Part, values: Sequence[bytes]) -> Iterator[Part]:
        """How to cut records that fail together: each suspect alone, if there are any."""
        if len(part) > _LOOK_CLOSER:
            yield from (part[start : start + _LOOK_CLOSER] for start in range(0, len(part), _LOOK_CLOSER))
            return
        suspects = [i for i in part if misfit(values[i], self._struct)]
        if not suspects:
            yield from halves(part)
            return
        if len(suspects) < len(part):
            yield sorted(set(part).difference(suspects))
        yield from ([i] for i in suspects)

    def _verdict(self, place: int, value: bytes, error: Exception) -> BadValue:
        try:
            read(value, 1, pa.schema([]))
        except ValueError as broken:
            return BadValue(place, DECODE, _shown(str(broken)))
        text = str(error)
        if not _COLUMN.match(_PLACE.sub("", text)):
            text = f"{misfit(value, self._struct) or UNREADABLE}: {text}"
        return BadValue(place, FIT, _shown(text))


def _shown(error: str) -> str:
    """The parser's words, but for the field and what is wrong with it: `a.b: string, not number`, as elsewhere."""
    text = _UNPARSED.sub(lambda found: f"{found[2]}, not {_TYPES.get(found[1], found[1])}", _PLACE.sub("", error))
    if column := _COLUMN.match(text):
        path, wanted, given, other = column.groups()
        text = f"{path.replace('/[]', '.element').replace('/', '.')}: {other or f'{given}, not {wanted}'}"
    return cut(text)

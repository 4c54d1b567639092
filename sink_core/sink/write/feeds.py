"""The data tables of a task: each record decoded for those whose rules take it, and its rows written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from calve.sink_core.packed import Int64s, taken
from calve.sink_core.records.columns.evolution import merged
from calve.sink_core.records.decode.calendar import on_calendar
from calve.sink_core.records.decode.decoded import FIT, BadValue, Decoded, Decoder
from calve.sink_core.records.decode.others import add
from calve.sink_core.records.decode.strict import StrictDecoder
from calve.sink_core.records.formats import Formats
from calve.sink_core.records.keys import KeyReader, Keys, ReadKeys
from calve.sink_core.sink.write.deadly import Given, Trial
from calve.sink_core.sink.write.outputs import Feed
from calve.sink_core.sink.write.router import Part, Router
from calve.sink_core.sink.write.spec import IngestSpec
from calve.sink_core.tables.budget import Budget
from calve.sink_core.tables.pieces import Outbox

Origins = Callable[[Int64s, pa.Array], pa.Array]
"""What SQL sees of the records at some places beside their values; given are their keys as it sees these."""

_NO_PLACES: Int64s = np.array([], np.int64)


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """What becomes of n records, each by its place: `bad` ones, `unrouted` ones that no table takes, those `filtered`
    by the transforms of all tables that take them, and the others, decoded for each table that takes them. `deletes`:
    they are tombstones, and what is decoded are the keys of rows that go.
    """

    number: int
    bad: Mapping[int, BadValue]
    unrouted: Int64s
    filtered: Int64s
    decoded: tuple[_Group, ...]
    skipped: Collection[int] = ()
    deletes: bool = False

    def without(self, places: Collection[int]) -> DecodedBatch:
        """The same, these records not to be written."""
        return replace(self, skipped=places)

    def but(self, deadly: Mapping[int, BadValue]) -> DecodedBatch:
        """The same, these records bad whatever stood in their place."""
        places = [*deadly]
        unrouted, filtered = np.setdiff1d(self.unrouted, places), np.setdiff1d(self.filtered, places)
        return replace(self, bad={**self.bad, **deadly}, unrouted=unrouted, filtered=filtered)

    def takers(self, place: int) -> list[str]:
        """The tables that take a record, or might if it were not bad."""
        groups = [group for group in self.decoded if place in self.bad or _has(group.places, place)]
        return [feed.name for group in groups for feed, part in group.parts if _has(part, place)]


@dataclass(frozen=True, slots=True)
class _Group:
    """Records decoded once for tables of one schema. `places` are those of the good ones, in order."""

    parts: list[tuple[Feed, Part]]
    columns: pa.RecordBatch
    places: Int64s


class Feeds:
    """The data tables of a task. `topics` says of which topic each of the reader's slices is. With a `trial` nothing is
    decoded here that has not been there.
    """

    def __init__(
        self,
        spec: IngestSpec,
        file_prefix: str,
        budget: Budget,
        topics: Sequence[str],
        outbox: Outbox | None = None,
        trial: Trial | None = None,
    ) -> None:
        self._trial = trial
        self._formats = Formats(spec.readings)
        by_format = self._formats.by_topics(dict.fromkeys(topics))
        numbers = {topic: number for number, (_, of) in enumerate(by_format) for topic in of}
        self._of_format, self._format_of = [of for of, _ in by_format], np.array([numbers[t] for t in topics], np.int64)
        self._keys = KeyReader([spec.readings.of(topic).key for topic in topics])
        self.feeds = [Feed(table, spec, file_prefix, budget, outbox) for table in spec.tables]
        formats = [self._formats.of(topic) for topic in topics]
        self.router = Router([(feed.name, feed.rule) for feed in self.feeds], spec.namings, topics, formats)
        self._evolving, self._columns = spec.evolving, dict[str, Schema]()
        self._decoders = list[Decoder]()
        self._alike = dict[tuple[StructType, int, tuple[tuple[str, ...], bool, int | None], int | None], int]()
        self._decoder_of = dict[tuple[int, int], int]()

    def sort(self, values: Sequence[bytes], slices: Int64s, keys: Keys, origins: Origins) -> DecodedBatch:
        """Decode each value for the tables that take it; `slices` says of which slice each is, `origins` gives what SQL
        sees of the records at some places.
        """
        if self._trial is None or not (deadly := self._trial.deadly(Given.of(values, slices, keys(), origins))):
            return self._sort(values, slices, keys, origins)
        values = [b"" if place in deadly else value for place, value in enumerate(values)]
        return self._sort(values, slices, _without(keys, deadly), origins).but(deadly)

    def _sort(self, values: Sequence[bytes], slices: Int64s, keys: Keys, origins: Origins) -> DecodedBatch:
        routed, read = self.router.route(values, slices), self._keys.read(keys, slices)
        bad, groups, left = {**routed.bad, **read.bad}, list[_Group](), set[int]()
        for place in routed.unrouted.tolist() if read.bad else ():
            # Nobody asks what its key is.
            bad.pop(place, None)
        alike = defaultdict[int, list[tuple[Feed, Part]]](list)
        for number, part in sorted(routed.parts.items()):
            for of_format, its in self._by_format(part, slices):
                alike[self._decoder_for(number, of_format)].append((self.feeds[number], its))
        for decoder, parts in alike.items():
            wanted = _union([part for _, part in parts])
            chosen = values if wanted is None else taken(values, wanted)
            places = np.arange(len(values)) if wanted is None else wanted
            decoded = self._decoders[decoder].decode(chosen)
            feed = parts[0][0]
            for each, _ in parts:
                add(each.dropped, decoded.dropped)
            if (wanted_fields := feed.wanted(decoded)) is not None:
                self._want(feed.name, wanted_fields)
            if feed.transforming is not None:
                decoded = feed.transforming.apply(decoded, partial(_at, origins, read, feed.key_type, places))
                left.update(np.setdiff1d(places, places[_known(decoded)]).tolist())
            if feed.by_kafka_key:
                decoded = feed.keyed(decoded, read.of(feed.key_type, _good(places, decoded).tolist()))
            decoded = on_calendar(feed.judge(decoded))
            if feed.events:
                left.update(np.setdiff1d(places, places[_known(decoded)]).tolist())
            for verdict in decoded.bad:
                place = int(places[verdict.index])
                bad.setdefault(place, self._verdict(replace(verdict, index=place), parts))
            groups.append(_Group(parts, decoded.columns, _good(places, decoded)))
        filtered = _in_none(left.difference(bad), groups) if left else _NO_PLACES
        return DecodedBatch(len(values), bad, routed.unrouted, filtered, tuple(groups))

    def _by_format(self, part: Part, slices: Int64s) -> Iterator[tuple[int, Part]]:
        """The formats of a table's records, with the places of each one's."""
        if len(self._of_format) == 1:
            yield 0, part
            return
        formats = self._format_of[slices] if part is None else self._format_of[slices[part]]
        for number in np.unique(formats).tolist():
            places = np.flatnonzero(formats == number)
            yield number, (None if len(places) == len(slices) else places if part is None else part[places])

    def decode_tombstones(self, keys: Keys, slices: Int64s) -> DecodedBatch:
        """Decode the keys of records without a value for each table whose rows they remove."""
        if self._trial is None or not (deadly := self._trial.deadly(Given(list(keys()), slices))):
            return self._tombstones(keys, slices)
        return self._tombstones(_without(keys, deadly), slices).but(deadly)

    def _tombstones(self, keys: Keys, slices: Int64s) -> DecodedBatch:
        bad, groups = dict[int, BadValue](), list[_Group]()
        changing = [
            (number, feed) for number, feed in enumerate(self.feeds) if feed.changes and feed.changes.by_tombstones
        ]
        raw = keys() if changing else ()
        read = self._keys.read(keys, slices) if any(feed.by_kafka_key for _, feed in changing) else ReadKeys(keys)
        for number, feed in changing:
            places = np.flatnonzero(self.router.takes_topics(number, slices))
            if not len(places):
                continue
            decoded = on_calendar(feed.gone(raw, read, places.tolist()))
            for verdict in decoded.bad:
                place = int(places[verdict.index])
                bad.setdefault(place, self._verdict(replace(verdict, index=place), [(feed, places)]))
            groups.append(_Group([(feed, places)], decoded.columns, _good(places, decoded)))
        return DecodedBatch(len(slices), bad, _NO_PLACES, _NO_PLACES, tuple(groups), deletes=True)

    def _decoder_for(self, number: int, of_format: int) -> int:
        """Which decoder a table has for values of a format: tables of one schema share it, and a record is decoded once
        for all of them. One that may be given more has a decoder of its own, which says what its records want, and so
        has one with SQL, one whose rows change, and one that knows its fields by other names.
        """
        if (number, of_format) not in self._decoder_of:
            feed = self.feeds[number]
            apart = feed.evolve or feed.transforming or feed.changes or not feed.names.exact
            known_by = (feed.names.ignored, feed.names.strict, feed.evolve.max_columns)
            alike = (feed.schema.as_struct(), of_format, known_by, number if apart else None)
            decoder = self._decoder_of[number, of_format] = self._alike.setdefault(alike, len(self._decoders))
            if decoder == len(self._decoders):
                made = self._of_format[of_format].decoder(feed.schema, feed.steps, feed.names)
                self._decoders.append(StrictDecoder(made) if feed.names.strict else made)
        return self._decoder_of[number, of_format]

    def _want(self, table: str, wanted: Schema) -> None:
        known = [self._columns[table]] if table in self._columns else []
        self._columns[table] = merged([*known, wanted])

    @property
    def wants(self) -> bool:
        """Whether tables must be made, or given something, before anything can be written."""
        return bool(self._columns or (self._evolving and self.router.wanted))

    def wanted(self) -> dict[str, Schema]:
        """By table the fields that it lacks; of a new one its columns, none if the file has them."""
        new = self.router.wanted.items() if self._evolving else ()
        return {**self._columns, **{name: self._inferred(values) for name, values in new}}

    def _inferred(self, values: Mapping[str, list[bytes]]) -> Schema:
        return self._formats.columns(values, lambda: values) if values else Schema()

    def _verdict(self, verdict: BadValue, parts: Sequence[tuple[Feed, Part]]) -> BadValue:
        """It names the first table that takes the record if there are several."""
        if verdict.stage != FIT or len(self.feeds) == 1:
            return verdict
        first = next(feed.name for feed, part in parts if _has(part, verdict.index))
        return replace(verdict, message=f"{first}: {verdict.message}")

    def write(self, found: DecodedBatch, origin: pa.Array) -> Iterator[tuple[Feed, Int64s | None]]:
        """Write what is good for all tables that take it; gives the places of the records that each table got, None
        for all. `origin` is the `_kafka` column of all records.
        """
        keep = np.ones(found.number, np.bool_)
        keep[[*found.bad, *found.skipped]] = False
        for group in found.decoded:
            row_of = np.full(found.number, -1, np.int64)
            row_of[group.places] = np.arange(len(group.places))
            there = keep & (row_of >= 0)
            for feed, part in group.parts:
                places = (None if there.all() else np.flatnonzero(there)) if part is None else part[there[part]]
                if places is None:
                    feed.write_decoded(group.columns, origin, deletes=found.deletes)
                elif len(places):
                    rows = group.columns
                    if len(places) < len(group.places):
                        rows = rows.take(pa.array(row_of[places]))
                    feed.write_decoded(rows, origin.take(pa.array(places)), deletes=found.deletes)
                yield feed, places


def _without(keys: Keys, deadly: Collection[int]) -> Keys:
    left = [None if place in deadly else key for place, key in enumerate(keys())]
    return lambda: left


def _at(origins: Origins, keys: ReadKeys, key: pa.DataType, places: Int64s, chosen: Sequence[int]) -> pa.Array:
    wanted = places[chosen]
    return origins(wanted, keys.of(key, wanted.tolist()))


def _known(decoded: Decoded) -> list[int]:
    """Of what became something; all is if nothing was left out."""
    return [*(range(len(decoded.columns)) if decoded.good is None else decoded.good), *(b.index for b in decoded.bad)]


def _in_none(places: Collection[int], groups: Sequence[_Group]) -> Int64s:
    """Those of the places that no table has a row of."""
    none = np.array(sorted(places), np.int64)
    for group in groups:
        none = np.setdiff1d(none, group.places, assume_unique=True)
    return none


def _good(places: Int64s, decoded: Decoded) -> Int64s:
    return places if decoded.good is None else places[decoded.good]


def _union(parts: Sequence[Part]) -> Int64s | None:
    chosen = [part for part in parts if part is not None]
    if len(chosen) < len(parts):
        return None
    return chosen[0] if len(chosen) == 1 else np.unique(np.concatenate(chosen))


def _has(part: Part, place: int) -> bool:
    if part is None:
        return True
    at = int(np.searchsorted(part, place))
    return at < len(part) and int(part[at]) == place

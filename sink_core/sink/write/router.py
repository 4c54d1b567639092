"""Which of a task's records each of its tables takes, by the tables' rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from calve.sink_core.config.routing import Condition, Naming, Rule
from calve.sink_core.packed import Int64s, taken
from calve.sink_core.records.decode.decoded import BadValue
from calve.sink_core.records.decode.format import Format
from calve.sink_core.records.routing_field import TextField

Part = Int64s | None
"""Places of records in ascending order; None for all."""

Bools = npt.NDArray[np.bool_]
Texts = Sequence[str | None]

SAMPLE_VALUES = 1_000
"""Of each table that is wanted, to infer its columns from."""

_MOST_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Routed:
    """`parts` by the table's number, those without a record left out. `bad` are values whose fields can't be read."""

    parts: dict[int, Part]
    unrouted: Int64s
    bad: Mapping[int, BadValue] = field(default_factory=dict[int, BadValue])


class Router:
    """Routes records to `tables` (names with their rules). `topics` says of which topic each slice is, `formats` of
    which format its values are.

    `wanted` gathers, by topic, values of records that would go to a table which `namings` allow and `tables` lack; none
    where the pipeline file has the columns.
    """

    def __init__(
        self,
        tables: Sequence[tuple[str, Rule]],
        namings: Sequence[Naming],
        topics: Sequence[str],
        formats: Sequence[Format],
    ) -> None:
        self.wanted: dict[str, dict[str, list[bytes]]] = {}
        self._rules = [rule for _, rule in tables]
        self._namings, self._topics = namings, topics
        self._trivial = not namings and all(rule.takes_all for rule in self._rules)
        self._takes = [np.array([rule.takes_topic(topic) for topic in topics], np.bool_) for rule in self._rules]
        self._named = [_Named(naming, tables, topics) for naming in namings]
        asked = {condition.field for rule in self._rules for condition in _asked(rule.where)}
        asked |= {condition.field for naming in namings for condition in _asked(naming.where, naming.allow)}
        self._formats = list({id(of): of for of in formats}.values())
        self._format_of = np.array([self._formats.index(of) for of in formats], np.int64)
        self._fields = {name: [TextField(name, of) for of in self._formats] for name in sorted(asked)}
        self._verdicts = defaultdict[Condition, dict[str, bool]](dict)
        self._looked_into = np.zeros(len(topics), np.bool_)
        for rule, of_topics in zip(self._rules, self._takes, strict=True):
            if rule.where is not None:
                self._looked_into |= of_topics
        for naming in namings:
            self._looked_into |= np.array([topic in naming.names for topic in topics], np.bool_)

    def route(self, values: Sequence[bytes], slices: Int64s) -> Routed:
        """The records of `values`, of which `slices` says the slice."""
        nothing = np.empty(0, np.int64)
        if self._trivial:
            return Routed(dict.fromkeys(range(len(self._rules))), nothing)
        texts, bad = self._read(values, slices)
        fulfilled = {condition: self._fulfilled(condition, texts[condition.field]) for condition in self._conditions}
        parts, taken = dict[int, Part](), np.zeros(len(values), np.bool_)
        taken[list(bad)] = True
        present = np.unique(slices)
        for number, rule in enumerate(self._rules):
            if rule.naming is not None or not self._takes[number][present].any():
                continue
            takes = self._takes[number][slices]
            if rule.where is not None:
                takes &= fulfilled[rule.where]
            taken |= takes
            if takes.all():
                parts[number] = None
            elif takes.any():
                parts[number] = np.flatnonzero(takes)
        for named in self._named:
            where = named.naming.where
            found = named.tables(texts[named.naming.allow.field], slices.tolist())
            numbers = np.where(fulfilled[where], found.numbers, -1) if where else found.numbers
            for name, places in found.unknown.items():
                wanted = [place for place in places if where is None or fulfilled[where][place]]
                taken[wanted] = True
                if wanted:
                    self._gather(name, wanted if named.naming.infers else [], values, slices)
            taken |= numbers >= 0
            parts.update(_by_number(numbers))
        return Routed(parts, np.flatnonzero(~taken), bad)

    def _gather(self, table: str, places: Sequence[int], values: Sequence[bytes], slices: Int64s) -> None:
        known = self.wanted.setdefault(table, {})
        room = SAMPLE_VALUES - sum(map(len, known.values()))
        for place in places[:room]:
            known.setdefault(self._topics[int(slices[place])], []).append(values[place])

    def takes_topics(self, number: int, slices: Int64s) -> Bools:
        """For each record whether the rule of a table, by its number, takes its topic."""
        return self._takes[number][slices]

    @property
    def _conditions(self) -> set[Condition]:
        mine = {rule.where for rule in self._rules} | {naming.where for naming in self._namings}
        return {condition for condition in mine if condition is not None}

    def _read(self, values: Sequence[bytes], slices: Int64s) -> tuple[dict[str, Texts], dict[int, BadValue]]:
        """The fields' values as text; of topics that no rule looks into there is none."""
        looked = np.flatnonzero(self._looked_into[slices])
        formats = self._format_of[slices[looked]]
        texts, bad = dict[str, Texts](), dict[int, BadValue]()
        for name, readers in self._fields.items():
            spread: list[str | None] = [None] * len(values)
            for number in np.unique(formats).tolist():
                places = looked[formats == number].tolist()
                chosen = values if len(places) == len(values) else taken(values, places)
                found, verdicts = readers[number].read(chosen)
                for index, verdict in verdicts.items():
                    bad.setdefault(places[index], replace(verdict, index=places[index]))
                if len(places) == len(values):
                    spread = found
                    break
                for place, text in zip(places, found, strict=True):
                    spread[place] = text
            texts[name] = spread
        return texts, bad

    def _fulfilled(self, condition: Condition, texts: Texts) -> Bools:
        known = self._verdicts[condition]
        if len(known) > _MOST_REMEMBERED:
            known.clear()
        for text in set(texts).difference(known):
            if text is not None:
                known[text] = condition.fulfilled(text)
        return np.array([text is not None and known[text] for text in texts], np.bool_)


@dataclass(frozen=True, slots=True)
class _Found:
    """By record its table's number, -1 for none, and the places of those whose table is unknown, by its name."""

    numbers: Int64s
    unknown: Mapping[str, Sequence[int]]


class _Named:
    """An entry whose tables are named by a field, with those of its tables that there are."""

    def __init__(self, naming: Naming, tables: Sequence[tuple[str, Rule]], topics: Sequence[str]) -> None:
        self.naming = naming
        self._topics = topics
        self._numbers = {n: i for i, (n, rule) in enumerate(tables) if rule.naming == naming.entry}
        self._others = {n for n, rule in tables if rule.naming != naming.entry}
        self._known: dict[tuple[int, str], tuple[int, str]] = {}

    def tables(self, texts: Texts, slices: Sequence[int]) -> _Found:
        numbers, unknown = np.full(len(texts), -1, np.int64), defaultdict[str, list[int]](list)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.clear()
        for place, (number, text) in enumerate(zip(slices, texts, strict=True)):
            if text is None:
                continue
            found = self._known.get((number, text))
            if found is None:
                found = self._known[number, text] = self._table(self._topics[number], text)
            numbers[place] = found[0]
            if found[1]:
                unknown[found[1]].append(place)
        return _Found(numbers, unknown)

    def _table(self, topic: str, text: str) -> tuple[int, str]:
        """The table's number, or the name of one that is not there yet."""
        name = self.naming.table(topic, text)
        if name is None or name in self._others:
            return -1, ""
        return (self._numbers[name], "") if name in self._numbers else (-1, name)


def _by_number(numbers: Int64s) -> dict[int, Part]:
    order = np.argsort(numbers, kind="stable")
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    pieces = np.split(order, borders) if len(order) else []
    return {int(numbers[piece[0]]): piece for piece in pieces if numbers[piece[0]] >= 0}


def _asked(*conditions: Condition | None) -> list[Condition]:
    return [condition for condition in conditions if condition is not None]

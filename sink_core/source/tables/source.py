"""`Tables`: a source of tables by query. Each table is a source partition, `{"table": "schema.table"}`, and has its own
way to tell which rows are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from calve.sink_core.codes import Code
from calve.sink_core.config.source_systems import TableByQuery, TopicNames
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Limits, Rows, Stored, Support, Topic, Update, Waiting, Work
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.tables.bulk import Bulk
from calve.sink_core.source.tables.by_number import ByNumber
from calve.sink_core.source.tables.by_time import ByTime
from calve.sink_core.source.tables.database import Database
from calve.sink_core.source.tables.table import QueriedTable, Way
from calve.sink_core.source.tables.window import Window

WAYS: Mapping[str, Callable[[QueriedTable], Way]] = {
    "transaction": Window,
    "timestamp": ByTime,
    "incrementing": ByNumber,
    "bulk": Bulk,
}
"""By what `by` names."""


T = TypeVar("T")


class Tables:
    """A table that can't be read stands alone: all others go on.

    Records have the row as JSON for a value, and its key's columns for a key.
    """

    def __init__(self, *, url: str, topics: TopicNames, tables: Sequence[Mapping[str, Any]]) -> None:
        """`tables` is what the file says of each. Raises ConfigError for what
        can't be; connects to nothing.
        """
        self._database, self._ways = Database(url), dict[FlatMap, Way]()
        self._topics = list[str]()
        for each in tables:
            asked = TableByQuery.model_validate(each)
            schema, _, name = asked.table.partition(".")
            table = QueriedTable(self._database, asked, topics.of(schema, name))
            self._ways[table.partition] = WAYS[asked.by](table)
            self._topics.append(table.topic)

    @property
    def fingerprint(self) -> str:
        return self._database.fingerprint

    def topics(self) -> Sequence[Topic]:
        return [Topic(name) for name in dict.fromkeys(self._topics)]

    def prepare(self, stored: Stored) -> None:
        """Nothing: what contradicts the database is found wherever it is looked at."""

    def plan(self, stored: Stored, limits: Limits) -> Sequence[Work]:
        some = Limits(max(1, limits.max_records // len(self._ways)), limits.max_bytes, limits.until)

        def work(partition: FlatMap, last: FlatMap | None, way: Way) -> Work | None:
            planned = way.plan(last, some)
            return Work(partition, last, planned.bound, planned.rows, way.whole) if planned is not None else None

        return [each for each in self._each(stored, work)[0] if each is not None]

    def read(self, work: Work) -> Iterator[Rows | Blocker]:
        try:
            yield from self._ways[work.partition].read(work.start, work.bound)
        except ConfigError as error:
            yield Blocker.of(_name(work.partition), error)

    def update_offsets(self, pending: Stored) -> Update | None:  # noqa: ARG002 - as it is
        return None

    def acknowledge(self, committed: Stored) -> None:
        """Nothing: the database keeps nothing for whoever asks."""

    def waiting(self, stored: Stored) -> Waiting:
        seen, blockers = self._each(stored, lambda _partition, last, way: (*way.waiting(last), [*way.blockers()]))
        blockers += [blocker for *_, some in seen for blocker in some]
        records = sum(rows for rows, *_ in seen)
        number = f"{records:,} row{'s' * (records != 1)}"
        what = "; ".join([number, *dict.fromkeys(remark for _, remark, _ in seen if remark)])
        windows = (way for way in self._ways.values() if isinstance(way, Window))
        until = next((way.until() for way in windows), None)
        return Waiting(records, what, until=until, blockers=blockers)

    def exactly_once(self) -> Support:
        why = "; ".join(dict.fromkeys(why for way in self._ways.values() if (why := way.why_not())))
        return Support(not why, why)

    def close(self) -> None:
        self._database.close()

    def _each(self, stored: Stored, ask: Callable[[FlatMap, FlatMap | None, Way], T]) -> tuple[list[T], list[Blocker]]:
        """What each table answers that can be read, asked by its source partition, its offset and its way; and what
        keeps the others, and rows that no run will read. Raises the first ConfigError if no table can be read.
        """
        answers, blockers, errors = list[T](), list[Blocker](), list[ConfigError]()
        for partition, way in self._ways.items():
            try:
                way.require()
                answers.append(ask(partition, _last(stored, partition, way), way))
            except ConfigError as error:
                blockers.append(Blocker.of(_name(partition), error))
                errors.append(error)
        if errors and not answers:
            raise errors[0]
        return answers, blockers


def _name(partition: FlatMap) -> str:
    return str(partition["table"])


def _last(stored: Stored, partition: FlatMap, way: Way) -> FlatMap | None:
    """The offset that is stored for a table. Raises ConfigError for one of another way."""
    last = stored.get(partition)
    if last is not None and frozenset(last) != way.fields:
        raise ConfigError(
            f"source.tables: {partition['table']} was read by other columns or another way: its source offset is "
            f"{last.json}, and now it would have {', '.join(sorted(way.fields))}",
            hint="set by, column and key as they were, or read the table by a pipeline of another name",
            code=Code.OTHER_WAY,
        )
    return last

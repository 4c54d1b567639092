"""Making a source by its class and options, and holding it to its rules."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, TypeVar, cast

from calve.sink_core.codes import Code
from calve.sink_core.config.references import resolve
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, ConfigError, ProtocolError, RetriableError, TerminalError
from calve.sink_core.source.base import (
    BadRow,
    Limits,
    Record,
    Rows,
    Source,
    Stored,
    Support,
    Topic,
    Update,
    Waiting,
    Work,
)
from calve.sink_core.source.flat_map import FlatMap

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """What makes a source, on any host: its class and its options, whose references are unresolved.

    `reserved` are topics that no record of it may go to.
    """

    type: str
    options: Mapping[str, Any] = field(repr=False)
    reserved: tuple[str, ...] = ()


class OpenedSource:
    """A source whose answers are what they must be; use as a context manager.

    Every method raises what the source raised, if that is a CalveError, else RetriableError for an OSError and
    TerminalError for any other, naming the class; and ProtocolError for an answer that breaks a rule of `Source`.
    """

    def __init__(self, spec: SourceSpec) -> None:
        """Raises ConfigError for a class that isn't there, or does not take these options."""
        self._type, self._reserved = spec.type, frozenset(spec.reserved)
        self._topics: frozenset[str] | None = None
        try:
            made: Callable[..., Source] = resolve_name(spec.type)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"source.type: {spec.type}: {error}", hint="is its package installed here?", code=Code.NO_SOURCE_CLASS
            ) from error
        try:
            self._source = made(**resolve(spec.options))
        except TypeError as error:
            raise ConfigError(
                f"source.options: {spec.type}: {error}", hint="correct source.options", code=Code.NO_SOURCE_CLASS
            ) from error
        except Exception as error:
            raise self._failed("opening it", error) from error

    def __enter__(self) -> OpenedSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._heard("closing it"):
            self._source.close()

    @property
    def fingerprint(self) -> str:
        with self._heard("its fingerprint"):
            found = self._source.fingerprint
        return _typed(found, str, self._type, "fingerprint")

    def topics(self) -> tuple[Topic, ...]:
        with self._heard("topics"):
            found = list(self._source.topics())
        for topic in found:
            _typed(topic, Topic, self._type, "topics()")
            if topic.name in self._reserved:
                raise self._broke(f"topics() names {topic.name}, which is Calve's own")
        self._topics = frozenset(topic.name for topic in found)
        return tuple(found)

    def prepare(self, stored: Stored) -> None:
        with self._heard("prepare"):
            self._source.prepare(stored)

    def plan(self, stored: Stored, limits: Limits) -> tuple[Work, ...]:
        with self._heard("plan"):
            found = [_typed(work, Work, self._type, "plan()") for work in self._source.plan(stored, limits)]
        seen = set[FlatMap]()
        for work in found:
            for part in (work.partition, work.bound, *([work.start] if work.start is not None else ())):
                _typed(part, FlatMap, self._type, "plan()")
            if work.partition in seen:
                raise self._broke(f"plan() has {work.partition} twice")
            if work.start != stored.get(work.partition):
                raise self._broke(
                    f"plan(): {work.partition} starts at {work.start}, stored is {stored.get(work.partition)}"
                )
            seen.add(work.partition)
        return tuple(found)

    def read(self, work: Work) -> Iterator[Rows | Blocker]:
        with self._heard(f"reading {work.partition.json}"):
            rows = iter(self._source.read(work))
        while True:
            with self._heard(f"reading {work.partition.json}"):
                found = next(rows, None)
            if found is None:
                return
            if isinstance(found, Blocker):
                yield found
                return
            self._check(_typed(found, Rows, self._type, "read()"))
            yield found

    def update_offsets(self, pending: Stored) -> dict[FlatMap, FlatMap | None]:
        """What is to be stored: `pending` with what the source makes of it."""
        with self._heard("update_offsets"):
            update: Update | None = self._source.update_offsets(dict(pending))
        if not update:
            return dict(pending)
        _typed(update, Mapping, self._type, "update_offsets()")
        for partition, offset in update.items():
            _typed(partition, FlatMap, self._type, "update_offsets()")
            if offset is not None:
                _typed(offset, FlatMap, self._type, "update_offsets()")
        return {**pending, **update}

    def acknowledge(self, committed: Stored) -> None:
        with self._heard("acknowledge"):
            self._source.acknowledge(committed)

    def waiting(self, stored: Stored) -> Waiting:
        with self._heard("waiting"):
            return _typed(self._source.waiting(stored), Waiting, self._type, "waiting()")

    def check(self) -> None:
        """Try what reading needs, where the source has a `check` for that."""
        with self._heard("check"):
            getattr(self._source, "check", lambda: None)()

    def exactly_once(self) -> Support:
        with self._heard("exactly_once"):
            return _typed(self._source.exactly_once(), Support, self._type, "exactly_once()")

    def _check(self, rows: Rows) -> None:
        _typed(rows.offset, FlatMap, self._type, "read()")
        known = self._topics or frozenset()
        for record in rows.records:
            if type(record) is not Record:
                _typed(record, Record, self._type, "read()")
            if record.topic not in known:
                # One that came up while it was read is named from then on.
                known = frozenset(topic.name for topic in self.topics())
                if record.topic not in known:
                    raise self._broke(f"read() has a record for {record.topic}, which topics() does not name")
        for bad in rows.bad:
            _typed(bad, BadRow, self._type, "read()")

    @contextmanager
    def _heard(self, doing: str) -> Generator[None]:
        try:
            yield
        except CalveError:
            raise
        except Exception as error:
            raise self._failed(doing, error) from error

    def _failed(self, doing: str, error: Exception) -> CalveError:
        if isinstance(error, CalveError):
            return error
        said = f"source {self._type}: {doing}: {type(error).__name__}: {error}"
        if isinstance(error, OSError):
            return RetriableError(said, hint="run again once its system answers", code=Code.SOURCE_AWAY)
        hint = f"correct its class ({self._type}) or what its options name, then calve resume FILE; nothing was stored"
        return TerminalError(said, hint=hint, code=Code.SOURCE_FAILED)

    def _broke(self, what: str) -> ProtocolError:
        return ProtocolError(f"source {self._type}: {what}", hint="correct the source", code=Code.SOURCE_BROKE_RULES)


def _typed(given: Any, wanted: type[T], of: str, where: str) -> T:
    if not isinstance(given, wanted):
        raise ProtocolError(
            f"source {of}: {where} gave {type(cast(object, given)).__name__}, not {wanted.__name__}",
            hint="correct the source",
            code=Code.SOURCE_BROKE_RULES,
        )
    return given

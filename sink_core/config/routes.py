"""The tables that a pipeline file and the topics of the moment stand for, each with its rule. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from calve.sink_core.codes import Code
from calve.sink_core.config.routing import (
    VALUE,
    Condition,
    Naming,
    Rule,
    fill_topic,
    gives,
    is_name,
    is_template,
    placeholders,
)
from calve.sink_core.config.sink import SinkConfig
from calve.sink_core.config.tables import Table
from calve.sink_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Fed:
    """A table, its entry in the file, its rule, and whether it is there from the beginning: what a name with
    placeholders stands for comes with its first record, even if the file spells it out as well.
    """

    name: str
    entry: Table
    rule: Rule
    explicit: bool


def is_open(config: SinkConfig) -> bool:
    """Whether topics or tables are not all in the file."""
    return config.source.topics_regex is not None or any(is_template(table.name) for table in config.tables)


def may_feed(config: SinkConfig, table: str) -> bool:
    return any(gives(entry.name, table) for entry in config.tables)


def fed_tables(config: SinkConfig, topics: Iterable[str], known: Iterable[str]) -> list[Fed]:
    """The file's own tables in its order, then those that `topics` give by their names, then those that are `known`
    by the log and that a name with placeholders may have stood for.

    Raises ConfigError for two topics that give one table, and for a name that is none.
    """
    by_topic = _by_topic(config, sorted(topics))
    own = {entry.name: entry for entry in config.tables if not is_template(entry.name)}
    found = [_own(config, entry, by_topic) for entry in own.values()]
    found += [Fed(n, e, _rule(e, frozenset([topic])), False) for n, (e, topic) in by_topic.items() if n not in own]
    names = {fed.name for fed in found} | _internal(config)
    for name in sorted(set(known) - names):
        index = _template_of(config, name)
        if index is not None:
            entry = config.tables[index]
            rule = _named_rule(config, index) if entry.name_from else _rule(entry, frozenset())
            found.append(Fed(name, entry, rule, False))
    return found


def namings(config: SinkConfig, topics: Iterable[str]) -> tuple[Naming, ...]:
    """Entries whose tables are named by a field, for the topics of the moment."""
    own = {t.name for t in config.tables if not is_template(t.name) and (t.topics is not None or t.where is not None)}
    taken = frozenset(own | _internal(config) | _by_topic(config, sorted(topics)).keys())
    given = [
        Naming(
            entry=index,
            allow=Condition(entry.name_from.field, entry.name_from.allow),
            where=_condition(entry),
            names={
                topic: name for topic in _topics_of(entry, sorted(topics)) if (name := _filled(config, entry, topic))
            },
            taken=taken,
            infers=entry.auto_create is not None and not entry.auto_create.columns,
        )
        for index, entry in enumerate(config.tables)
        if entry.name_from is not None
    ]
    return tuple(given)


def _by_topic(config: SinkConfig, topics: list[str]) -> dict[str, tuple[Table, str]]:
    """Tables named by topics alone, each with its entry and topic."""
    found: dict[str, tuple[Table, str]] = {}
    for entry in config.tables:
        if not is_template(entry.name) or VALUE in placeholders(entry.name):
            continue
        for topic in _topics_of(entry, topics):
            name = _filled(config, entry, topic)
            if name is None:
                continue
            if not is_name(name) or name in _internal(config):
                raise ConfigError(
                    f"tables: topic {topic} gives {name} by {entry.name}, which is no name for its table",
                    hint="narrow source.topics_regex, or name a table for the topic under another name",
                    code=Code.NO_TABLE_NAME,
                )
            if name in found:
                raise ConfigError(
                    f"tables: topics {found[name][1]} and {topic} both give table {name}",
                    hint="use more of the topics' names in the table's name, or list one of the topics under topics of "
                    "a table of its own",
                    code=Code.ONE_TABLE_TWICE,
                )
            found[name] = (entry, topic)
    return found


def _own(config: SinkConfig, entry: Table, by_topic: dict[str, tuple[Table, str]]) -> Fed:
    """A table that the file names, by its own rule or that of the name with placeholders that it stands in for."""
    if entry.topics is not None or entry.where is not None:
        return Fed(entry.name, entry, _rule(entry, None if entry.topics is None else frozenset(entry.topics)), True)
    if entry.name in by_topic:
        template, topic = by_topic[entry.name]
        return Fed(entry.name, entry, _rule(template, frozenset([topic])), False)
    index = _template_of(config, entry.name)
    if index is None:
        return Fed(entry.name, entry, Rule(), True)
    template = config.tables[index]
    rule = _named_rule(config, index) if template.name_from else _rule(template, frozenset())
    return Fed(entry.name, entry, rule, False)


def _named_rule(config: SinkConfig, index: int) -> Rule:
    entry = config.tables[index]
    return _rule(entry, None if entry.topics is None else frozenset(entry.topics), index)


def _rule(entry: Table, topics: frozenset[str] | None, naming: int | None = None) -> Rule:
    return Rule(topics, _condition(entry), naming)


def _condition(entry: Table) -> Condition | None:
    return Condition(entry.where.field, entry.where.matches) if entry.where else None


def _template_of(config: SinkConfig, table: str) -> int | None:
    found = (i for i, entry in enumerate(config.tables) if is_template(entry.name) and gives(entry.name, table))
    return next(found, None)


def _topics_of(entry: Table, topics: list[str]) -> list[str]:
    return topics if entry.topics is None else [topic for topic in topics if topic in entry.topics]


def _filled(config: SinkConfig, entry: Table, topic: str) -> str | None:
    return fill_topic(entry.name, topic, config.source.topics_regex)


def _internal(config: SinkConfig) -> set[str]:
    return {config.ledger_table, config.dead_letter_table}

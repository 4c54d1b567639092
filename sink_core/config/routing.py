"""Which records go to which table: rules, and names of tables with placeholders. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast

import re2

TABLE_NAME = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+"
"""No part of a name can leave the warehouse: neither `..` nor `/` is one."""

TOPIC, VALUE = "topic", "value"
"""The placeholders beside named groups of `topics_regex`."""

MOST_CHARACTERS = 200
"""Longer names are refused: catalogs and file systems take 255 bytes, some of them with more than the name in it."""

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_INTERNAL = re.compile(r"__.*|calve\..*\.control")


class Pattern(Protocol):
    """What is used of a compiled regular expression."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def fullmatch(self, text: str) -> re.Match[str] | None: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """Records whose `field` (`outer.inner` for a nested one) has a value that the regular expression matches whole."""

    field: str
    matches: str

    def fulfilled(self, text: str) -> bool:
        return compiled(self.matches).fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """Which records a table gets.

    Those of `topics` (None: of all) that fulfil `where`, if there is one; of a table of `naming` (the number of its
    entry in the pipeline file) only those whose field's value names it.
    """

    topics: frozenset[str] | None = None
    where: Condition | None = None
    naming: int | None = None

    @property
    def takes_all(self) -> bool:
        return self == ALL

    @property
    def by_field(self) -> bool:
        """Whether it takes a look into the records."""
        return self.where is not None or self.naming is not None

    def takes_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics


ALL = Rule()


@dataclass(frozen=True, slots=True)
class Naming:
    """An entry whose tables are named by a field of the records.

    `names` are by topic, with only `{value}` left to fill; `taken` are names that belong to others. `infers`:
    columns of new tables are those that records show.
    """

    entry: int
    allow: Condition
    where: Condition | None
    names: Mapping[str, str]
    taken: frozenset[str]
    infers: bool = True

    def table(self, topic: str, value: str) -> str | None:
        """The table of a record, None if its value names none."""
        if topic not in self.names or not self.allow.fulfilled(value):
            return None
        name = fill_value(self.names[topic], value)
        return None if name is None or name in self.taken else name


def placeholders(name: str) -> set[str]:
    return set(_PLACEHOLDER.findall(name))


def is_template(name: str) -> bool:
    return "{" in name


def matching(topics: Iterable[str], pattern: str) -> list[str]:
    """Topics whose whole name matches; never those of Kafka itself, nor control topics."""
    found = compiled(pattern)
    return sorted(t for t in topics if found.fullmatch(t) and not is_internal(t))


def left_out(topics: Iterable[str], pattern: str) -> list[str]:
    """Topics that match and are left out for being control topics. Those of Kafka itself nobody misses."""
    found = compiled(pattern)
    return sorted(t for t in topics if found.fullmatch(t) and is_internal(t) and not t.startswith("__"))


def is_internal(topic: str) -> bool:
    """Whether it is a topic of Kafka itself, or a control topic."""
    return _INTERNAL.fullmatch(topic) is not None


def beginning(pattern: str) -> str:
    """How every name that matches begins, by the pattern's first literal characters; may be empty."""
    found = re.match(r"(?:[A-Za-z0-9_-]|\\\.)*(?![?*{])", pattern)
    return "" if found is None or "|" in pattern else found[0].replace("\\.", ".")


def fill_topic(name: str, topic: str, pattern: str | None) -> str | None:
    """A table's name with all but `{value}` filled from a topic's name; None if that lacks what the name asks for.

    A dot in what is filled in becomes `_`, unless the placeholder is the whole name.
    """
    found = compiled(pattern).fullmatch(topic) if pattern else None
    values = {**(found.groupdict() if found else {}), TOPIC: topic, VALUE: f"{{{VALUE}}}"}
    wanted = placeholders(name)
    if any(values.get(each) is None for each in wanted):
        return None
    whole = _PLACEHOLDER.fullmatch(name) is not None
    return _PLACEHOLDER.sub(lambda m: values[m[1]] if whole else str(values[m[1]]).replace(".", "_"), name)


def fill_value(name: str, value: str) -> str | None:
    """The name with a record's value for `{value}`; None if that gives no table name.

    The value is taken as it is: two values never name one table.
    """
    if "." in value and name != f"{{{VALUE}}}":
        return None
    filled = name.replace(f"{{{VALUE}}}", value)
    return filled if is_name(filled) else None


def is_name(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and compiled(TABLE_NAME).fullmatch(text) is not None


def gives(name: str, table: str) -> bool:
    """Whether a name with placeholders may stand for a table."""
    if not is_template(name):
        return name == table
    literal = _PLACEHOLDER.split(name)[::2]
    inner = r"[A-Za-z0-9_.-]+" if _PLACEHOLDER.fullmatch(name) else r"[A-Za-z0-9_-]+"
    return is_name(table) and re.fullmatch(inner.join(map(re.escape, literal)), table) is not None


@cache
def compiled(pattern: str) -> Pattern:
    """A user's regular expression, by RE2: whatever a record or a topic's name is, it takes time linear in its length.
    Raises ValueError for what RE2 can't do, such as lookaround and references back.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return cast(Pattern, re2.compile(pattern, options))
    except re2.error as error:
        raise ValueError(error.args[0].decode()) from None

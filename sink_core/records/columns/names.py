"""The names under which records have a table's fields: its own, those of its name mapping, other spellings if allowed.

A field's own name goes first, then a name of `schema.name-mapping.default`, then one that differs in case only. A null
under another name than the own one is as good as no field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema, index_by_id

from calve.sink_core.records.columns.arrow import iceberg_id
from calve.sink_core.records.columns.column_names import ANY_COLUMN, ColumnRule

ALL = "*"


class TwoOfOne(ValueError):
    """Two fields of a record are the same field of the table."""


@dataclass(frozen=True, slots=True)
class Names:
    """`aliases` are names of the mapping by field id; with `any_case` names match whatever their case."""

    aliases: Mapping[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    any_case: bool = False
    known: frozenset[str] = frozenset()
    """What another name for some field may be, in lower case if that doesn't matter."""
    within: str = ""
    """The field below which records are asked what the table lacks, nothing for all of them."""
    ignored: tuple[str, ...] = ()
    """Dotted names of fields that are not counted where the table lacks them, nor those below; `*` for all."""
    strict: bool = False
    """Whether a record with a field that would be counted is a dead letter."""
    rule: ColumnRule = ANY_COLUMN
    """What the table's format asks of columns that it is given."""

    @property
    def exact(self) -> bool:
        """Whether fields have no other names than their own."""
        return not self.aliases and not self.any_case

    def may_be_other(self, name: str) -> bool:
        """Whether a name that isn't a field's own, wherever it stands, may be another one for a field."""
        return (name.casefold() if self.any_case else name) in self.known

    def asks(self, path: str) -> bool:
        """Whether it matters that the table lacks the field at this dotted path."""
        return not self.within or path.startswith(f"{self.within}.")

    @property
    def count(self) -> bool:
        """Whether any field that the table lacks is counted."""
        return ALL not in self.ignored

    def counts(self, path: str) -> bool:
        """Whether the field at this dotted path is counted if the table lacks it."""
        return (
            self.count
            and self.asks(path)
            and not any(path == name or path.startswith(f"{name}.") for name in self.ignored)
        )

    def own_names(self, fields: Iterable[tuple[int, str]], given: Iterable[str]) -> dict[str, str]:
        """By given name the own name of the field it stands for, those of no field left out.

        `fields` are ids and own names of one struct. Raises TwoOfOne naming both.
        """
        fields, given = list(fields), list(given)
        own = {name for _, name in fields}
        found = {name: name for name in given if name in own}
        if self.exact:
            return found
        taken = dict(found)
        for name in given:
            if name in own or (of := self._other(fields, name)) is None:
                continue
            if of in taken:
                raise TwoOfOne(f"{of}: {taken[of]} and {name} both stand for it")
            found[name], taken[of] = of, name
        return found

    def called(self, wanted: pa.DataType | pa.Schema, given: Iterable[str]) -> dict[str, str]:
        """By own name the given one that stands for a field of a struct of a file's schema; as `own_names` else."""
        fields = [(iceberg_id(of), str(of.name)) for of in wanted]
        return {own: name for name, own in self.own_names(fields, given).items()}

    def _other(self, fields: Iterable[tuple[int, str]], given: str) -> str | None:
        fields = list(fields)
        for field_id, name in fields:
            if given in self.aliases.get(field_id, ()):
                return name
        if self.any_case:
            same = [name for _, name in fields if name.casefold() == given.casefold()]
            return same[0] if len(same) == 1 else None
        return None


EXACT = Names()

UNCOUNTED = Names(ignored=(ALL,))
"""Of a schema whose fields are not a table's columns: what else records have does not matter."""


def names_of(
    schema: Schema,
    mapping: Mapping[int, Collection[str]] | None,
    *,
    any_case: bool = False,
    within: str = "",
    ignored: tuple[str, ...] = (),
    strict: bool = False,
    rule: ColumnRule = ANY_COLUMN,
) -> Names:
    """The names of a table's fields; `mapping` has other ones by field id. The rest is as in `Names`."""
    own = {field_id: of.name for field_id, of in index_by_id(schema).items()}
    aliases = {
        field_id: others
        for field_id, names in (mapping or {}).items()
        if field_id in own and (others := frozenset(names) - {own[field_id]})
    }
    if not aliases and not any_case:
        return Names(within=within, ignored=ignored, strict=strict, rule=rule)
    others = [*own.values(), *(name for names in aliases.values() for name in names)]
    known = frozenset(name.casefold() if any_case else name for name in others)
    return Names(aliases, any_case, known, within, ignored, strict, rule)

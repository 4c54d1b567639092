"""What PostgreSQL's catalog says of a table: its columns' types, its key, and whether the user sees all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.postgres.relations import KEY


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """Of one table or view. `kinds` are type ids by column, `key` the columns of the index that PostgreSQL goes by in
    its log, in the index's order; `hidden` columns the `user` may not read, `filtered` some policy of rows.
    """

    kinds: Mapping[str, int]
    key: tuple[str, ...]
    hidden: tuple[str, ...]
    filtered: bool
    reachable: bool
    user: str

    @classmethod
    def of(cls, connection: sa.Connection, table: sa.Table) -> CatalogEntry:
        named = {"schema": table.schema, "table": table.name}
        [(oid, key, hidden, filtered, reachable, user)] = connection.execute(
            sa.text(_TABLE.format(key=KEY)), named
        ).all()
        kinds = {str(name): int(kind) for name, kind in connection.execute(sa.text(_KINDS), {"oid": oid})}
        return cls(kinds, tuple(key), tuple(hidden), filtered, reachable, user)

    def require_all_seen(self, name: str) -> None:
        """Raise ConfigError for what the user doesn't see of a table, with the statement that mends it."""
        user = quoted(self.user)
        schema, _, table = name.partition(".")
        full = f"{quoted(schema)}.{quoted(table)}"
        if not self.reachable:
            raise _unseen(
                f"{self.user} may not use schema {schema}", f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {user}"
            )
        if len(self.hidden) == len(self.kinds) and self.kinds:
            raise _unseen(f"{self.user} may not read {name}", f"GRANT SELECT ON {full} TO {user}")
        if self.hidden:
            columns = ", ".join(map(quoted, self.hidden))
            raise _unseen(
                f"{self.user} may not read {name}.{', '.join(self.hidden)}",
                f"GRANT SELECT ({columns}) ON {full} TO {user}",
            )
        if self.filtered:
            raise _unseen(
                f"row-level security of {name} holds for {self.user}: rows that its policies hide would be missing",
                f"ALTER ROLE {user} BYPASSRLS",
            )


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _unseen(what: str, statement: str) -> ConfigError:
    return ConfigError(f"source.tables: {what}", hint=statement, code=Code.DATABASE_RIGHTS)


_TABLE = """
SELECT c.oid::bigint, {key},
       ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
               AND NOT a.attisdropped AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY a.attnum),
       row_security_active(c.oid), has_schema_privilege(n.oid, 'USAGE'), current_user::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = :table
"""
_KINDS = """
SELECT attname::text, atttypid::bigint FROM pg_attribute
WHERE attrelid = :oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

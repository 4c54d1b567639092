"""Kinds of text that stand in several places of a pipeline file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from calve.sink_core.config.model import Matching, refusal
from calve.sink_core.config.routing import TABLE_NAME, compiled


def _regex(given: str) -> str:
    try:
        compiled(given)
    except ValueError as error:
        raise refusal(
            f"{given!r} is no regular expression of RE2, which has no lookaround and no references back: {error}"
        ) from None
    return given


PipelineName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
TOPIC_NAME = r"^[A-Za-z0-9._-]{1,249}$"
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME)]
TableName = Annotated[
    str,
    Matching(rf"^{TABLE_NAME}$", "a table name; write namespace.table (letters, digits, _ and -)"),
]
_PART = r"([A-Za-z0-9_-]|\{[A-Za-z_][A-Za-z0-9_]*\})+"
TableNames = Annotated[
    str,
    Matching(
        rf"^({_PART}(\.{_PART})+|\{{[A-Za-z_][A-Za-z0-9_]*\}})$",
        "a table name; write namespace.table (letters, digits, _ and -), with placeholders as in shop.{entity}",
    ),
]
Regex = Annotated[str, AfterValidator(_regex)]
FieldPath = Annotated[str, Matching(r"^[^.]+(\.[^.]+)*$", "a field; write field, or outer.inner for a nested one")]
ColumnName = Annotated[str, Matching(r"^[^.]+$", "a column; write the name of one, not of a field within")]
Cron = Annotated[str, Matching(r"^\S+( +\S+){4}$", "a cron line; write five fields such as 30 2 * * *")]
Owner = Annotated[
    str, Matching(r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+)$", "an owner; write team:name or an e-mail address")
]
KeyPart = Annotated[str, Matching(r"^[A-Za-z0-9_]+$", "part of an asset key; use letters, digits and _")]

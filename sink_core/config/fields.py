"""Kinds of text that stand in several places of a pipeline file."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from sink_core.config.model import Matching

TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
TableName = Annotated[
    str,
    Matching(r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$", "a table name; write namespace.table (letters, digits, _ and -)"),
]
Cron = Annotated[str, Matching(r"^\S+( +\S+){4}$", "a cron line; write five fields such as 30 2 * * *")]
Owner = Annotated[
    str, Matching(r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+)$", "an owner; write team:name or an e-mail address")
]
KeyPart = Annotated[str, Matching(r"^[A-Za-z0-9_]+$", "part of an asset key; use letters, digits and _")]

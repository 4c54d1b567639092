from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy.exc import ArgumentError, OperationalError

from calve.sink_core.config.error_text import describe, first_line

LONG = "x" * 1_000


@dataclass
class Java:
    """As py4j gives a Java exception."""

    message: str | None

    def getMessage(self) -> str | None:  # noqa: N802 - Java's name
        return self.message

    def __str__(self) -> str:
        return "java.lang.Exception: boom"


class FromJava(Exception):
    def __init__(self, message: str | None) -> None:
        super().__init__("An error occurred while calling o1.sql")
        self.java_exception = Java(message)


@pytest.mark.parametrize(
    ("error", "described", "line"),
    [
        (ValueError("first\nsecond"), "ValueError: first", "first"),
        (ValueError("\n  first  \n"), "ValueError: first", "first"),
        (ValueError(""), "ValueError", "ValueError"),
        (ValueError("with {'token': 'hunter2'}"), "ValueError: with", "with {'token': 'hunter2'}"),
        (OSError("at pg://me:hunter2@db/x"), "OSError: at pg://me:***@db/x", "at pg://me:***@db/x"),
        (ValueError(LONG), f"ValueError: {LONG[:300]}", LONG[:300]),
        (OperationalError("SELECT hunter2", {}, OSError("gone")), "OperationalError: gone", "gone"),
        (ArgumentError("at hunter2"), "ArgumentError", "ArgumentError"),
        (FromJava("no such table\n  at X"), "FromJava: no such table", "no such table"),
        (FromJava(None), "FromJava: java.lang.Exception: boom", "java.lang.Exception: boom"),
    ],
)
def test_an_error_is_one_line_without_passwords(error: Exception, described: str, line: str) -> None:
    assert (describe(error), first_line(error)) == (described, line)

from __future__ import annotations

from dataclasses import dataclass

import pytest
from sqlalchemy.exc import ArgumentError, OperationalError

from calve.sink_core.config.error_text import describe, first_line, of_record
from calve.sink_core.config.references import redact_text, without_user_info

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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x.password=a&token=b;c_secret.key=d e=f", "x.password=***&token=***;c_secret.key=*** e=f"),
        ("token-token=b tokens", "token-token=*** tokens"),
        ("see ://a:b ://c:d/e@f@g h", "see ://a:b ://c:***@g h"),
        ("see x://h/?u=y://u:p/w@h", "see x://h/?u=y://u:***@h"),
        ("see x://h:1/p", "see x://h:1/p"),
    ],
)
def test_what_is_hidden_is_all_of_the_value(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("x://u:p@h/d?q=1", "x://h/d"),
        ("x://u:p/w@h:1/d", "x://h:1/d"),
        ("x://u@h/d", "x://h/d"),
        ("x://u:p@p@h/d", "x://h/d"),
        ("x://h:1/d", "x://h:1/d"),
    ],
)
def test_an_address_is_shown_without_its_user(uri: str, shown: str) -> None:
    assert without_user_info(uri) == shown


def test_what_a_record_says_is_shown_as_it_stands() -> None:
    assert of_record(ValueError("  token=a ://u:p@h\nmore")) == "token=a ://u:p@h"

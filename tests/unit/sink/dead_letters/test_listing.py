"""What is shown of a value and of an error: one line, no secret, messages of one kind as one."""

from __future__ import annotations

import pytest

from calve.sink_core.sink.dead_letters.listing import PREVIEW, folded, preview, shown_error


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        (b"", ""),
        (b'{"id": 1}', '{"id": 1}'),
        (b"two\nlines\x00", r"two\nlines\x00"),
        (b'{"password": "hunter2", "id": 1}', '{"password": "***", "id": 1}'),
        (b'{"Api_Key":12345,"id":1}', '{"Api_Key":"***","id":1}'),
        (b'{"a": {"token": "x\\"y"}}', '{"a": {"token": "***"}}'),
        (b'{"tokens": ["a", "b"], "id": 1}', '{"tokens": ***'),
        (b'{"secret": {"deep": "x"}}', '{"secret": ***'),
        (b'{"password": "never closed', '{"password": "***"'),
        (b"\xff\xfe", "fffe"),
        (b"\xff" * 100, "ff" * (PREVIEW // 2 - 1) + "…"),
    ],
)
def test_a_value_is_shown_as_one_line_without_secrets(value: bytes | None, shown: str) -> None:
    assert preview(value) == shown


def test_a_long_value_is_cut_and_a_character_at_the_cut_is_no_error() -> None:
    assert preview(b'"' + b"x" * 10_000) == '"' + "x" * (PREVIEW - 2) + "…"
    assert preview("ß".encode() * 5_000) == "ß" * (PREVIEW - 1) + "…"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("id: 'x1' is not a long", "id: … is not a long"),
        ("id: 4294967296 is out of range", "id: … is out of range"),
        ("column2: 1.5e3 and -7", "column2: … and …"),
        ("'it\\'s' is not base64", "… is not base64"),
    ],
)
def test_errors_that_differ_in_values_only_are_one(error: str, kind: str) -> None:
    assert folded(error) == kind


def test_an_error_that_was_stored_with_escapes_is_shown_without() -> None:
    assert shown_error("id: 'a\x1b[2J\n' is no long") == r"id: 'a\x1b[2J\n' is no long"


def test_what_an_error_quotes_of_a_secret_is_hidden() -> None:
    assert shown_error("user.password: 'hunter2' is not base64") == "user.password: *** is not base64"
    assert shown_error("id: 'hunter2' is not base64") == "id: 'hunter2' is not base64"

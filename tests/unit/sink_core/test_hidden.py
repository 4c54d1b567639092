"""A value that is to be kept secret is in nothing that is said, whatever form it has there."""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from calve.sink_core.errors import ConfigError, FindingError
from calve.sink_core.hidden import HIDDEN, Hushed, hushed, hushing, keep_secret, plain_without_secrets, without_secrets

WORD = "w0rd"
SECRETS = ("PLANTED%x9/@ #1", "PLANTED-line\n", "plänted\\'\"value", "hush", WORD)


@pytest.fixture(autouse=True)
def planted(no_secrets_of_others: None) -> None:
    keep_secret(*SECRETS)


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "stripped": str.strip,
    "repr": lambda value: repr(value)[1:-1],
    "repr of bytes": lambda value: repr(value.encode())[2:-1],
    "JSON": lambda value: json.dumps(value)[1:-1],
    "percent-encoded": lambda value: quote(value, safe=""),
    "but for slashes": quote,
    "of a form": quote_plus,
    "base64": lambda value: b64encode(value.encode()).decode(),
    "base64 of addresses": lambda value: urlsafe_b64encode(value.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_each_form_is_hidden(secret: str, form: str) -> None:
    text = FORMS[form](secret)
    shown = without_secrets(f"Bearer '{text}', twice: {text}")
    assert text.strip() not in shown
    assert shown.count(HIDDEN) >= 2


def test_a_short_one_is_hidden_as_a_word_and_a_long_one_within_words() -> None:
    assert without_secrets("hush hushed") == "*** hushed"
    assert "PLANTED-line" not in without_secrets("xPLANTED-linex")


def test_errors_are_without_them_from_the_start() -> None:
    error = ConfigError("said hush", hint="not hush")
    assert (error.message, error.hint, error.args) == ("said ***", "not ***", ("said ***", "not ***"))
    found = FindingError("f", "hush", stored="hush", found="hush", hint="hush")
    assert "hush" not in f"{found}{vars(found)}"
    assert plain_without_secrets({"a": ["hush", ("hush", 1)]}) == {"a": ["***", ["***", 1]]}


def test_an_error_of_ours_stays_one_if_it_was_made_before_its_secret_was_known() -> None:
    error = FindingError("f", "late-s3cret", stored="late-s3cret", found="b", hint="see late-s3cret")
    keep_secret("late-s3cret")
    assert hushed(error) is error
    assert "late" not in f"{error}{error.args}{vars(error)}"


def _raised(error: Exception) -> Exception:
    """An error with a cause of a cause, and one that came up beside it."""
    try:
        try:
            try:
                raise KeyError(WORD)
            except KeyError:
                raise OSError(7, f"no way to {WORD}") from None
        except OSError as cause:
            raise error from cause
    except type(error) as raised:
        return raised


@pytest.mark.parametrize("words", ["nothing", WORD])
def test_what_an_error_came_from_is_without_them(words: str) -> None:
    error = _raised(ValueError(words))
    shown = hushed(error)
    assert (shown is error) == (words == "nothing")
    text = "".join(traceback.format_exception(shown))
    assert WORD not in text
    assert "in _raised" in text
    assert "OSError: [Errno 7] no way to ***" in text
    assert type(shown).__name__ == "ValueError"
    assert hushed(shown) is shown


def test_what_raises_in_there_raises_without_them() -> None:
    error = _raised(ValueError(WORD))
    with pytest.raises(Hushed) as raised, hushing():
        raise error
    text = "".join(traceback.format_exception(raised.value))
    assert WORD not in text
    assert "no way to ***" in text
    with pytest.raises(ConfigError) as ours, hushing():
        raise ConfigError("ours") from error
    assert WORD not in "".join(traceback.format_exception(ours.value))


def test_a_group_is_hushed_too() -> None:
    [inner] = hushed(ExceptionGroup("both", [ValueError(WORD)])).exceptions  # pyright: ignore
    assert (type(inner).__name__, str(inner)) == ("ValueError", "***")


def test_logs_are_without_them(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise _raised(ValueError(WORD))
    except ValueError:
        logging.getLogger("any.library").exception("with %s and %d", WORD, 5)
    assert caplog.messages == ["with *** and 5"]
    assert WORD not in caplog.text
    assert "Traceback" in caplog.text

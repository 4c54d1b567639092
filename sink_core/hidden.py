"""Secrets by their values: what references were resolved to, hidden wherever something is said.

`keep_secret` hears of a value where it is resolved; each way out (messages, outputs, logs, Dagster's events) asks
`without_secrets`, or `hushed` for an error that libraries have raised. A process knows what it has resolved itself.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast, runtime_checkable
from urllib.parse import quote, quote_plus

HIDDEN = "***"

_LEAST, _ANYWHERE = 3, 8
"""Shorter ones would take half of the words out of every message, and are none. One of `_ANYWHERE` characters that is
more than letters is hidden within words too."""

_QUOTED = 3

_kept: dict[str, re.Pattern[str] | None] = {}
"""Forms of secrets, and how to find one that only counts as a word of its own."""


def keep_secret(*values: str) -> None:
    """Have nothing that this process says hold these values, nor what they are in addresses, base64 or quotes."""
    forms = {form for value in values for form in _forms(value) if len(form) >= _LEAST} - _kept.keys()
    for form in forms:
        anywhere = len(form) >= _ANYWHERE and not form.isalpha()
        _kept[form] = None if anywhere else re.compile(rf"(?<!\w){re.escape(form)}(?!\w)")
    if forms:
        _hush_logs()


def without_secrets(text: str) -> str:
    """`text` without the values that are to be kept secret. In time linear in its length."""
    # The longest first: one may be the beginning of another.
    for form in sorted((form for form in _kept if form in text), key=len, reverse=True):
        word = _kept[form]
        text = text.replace(form, HIDDEN) if word is None else word.sub(HIDDEN, text)
    return text


def plain_without_secrets(value: Any) -> Any:
    """What JSON has, mappings, lists and texts, with `without_secrets` of each text."""
    if isinstance(value, dict):
        return {name: plain_without_secrets(each) for name, each in cast(dict[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [plain_without_secrets(each) for each in cast(list[object], value)]
    return without_secrets(value) if isinstance(value, str) else value


class Hushed(Exception):
    """Stands for an error whose words hold a secret: of a class of its own, called as the error's is, with the rest."""


@runtime_checkable
class _CanHush(Protocol):
    """An error that stays what it is."""

    def hush(self) -> None: ...


def hushed(error: BaseException) -> BaseException:
    """`error` if it says no secret, else one that stands for it. The same goes for what it came from, in place."""
    return _hushed(error, {})


@contextmanager
def hushing() -> Generator[None]:
    """Raise what is raised in here as `hushed`: whoever shows it shows its causes too, and libraries made these."""
    try:
        yield
    except Exception as error:
        if (quiet := hushed(error)) is error:
            raise
        # What is handled right now would else be told as its context.
        raise quiet from quiet.__cause__ or quiet.__context__


def _hushed(error: BaseException, known: dict[int, BaseException]) -> BaseException:
    if (there := known.get(id(error))) is not None:
        return there
    stand = error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        stand = group.derive([_hushed(each, known) for each in group.exceptions]).with_traceback(error.__traceback__)
    else:
        # With its notes, and what a class shows of its own.
        words = "".join(traceback.format_exception_only(error))
        if without_secrets(words) == words:
            pass
        elif isinstance(error, _CanHush):
            error.hush()
        else:
            kind = type(type(error).__name__, (Hushed,), {"__module__": type(error).__module__})
            stand = kind(without_secrets(str(error))).with_traceback(error.__traceback__)
    known[id(error)] = stand
    cause, context, suppressed = error.__cause__, error.__context__, error.__suppress_context__
    stand.__context__ = None if context is None else _hushed(context, known)
    stand.__cause__ = None if cause is None else _hushed(cause, known)
    stand.__suppress_context__ = suppressed
    return stand


def _forms(value: str) -> Iterator[str]:
    for text in {value, value.strip(), *value.splitlines()}:
        raw = text.encode(errors="surrogateescape")
        yield from (*_quoted(text), repr(raw)[2:-1])
        yield from (quote(raw, safe=""), quote(raw), quote_plus(raw))
        for packed in (b64encode(raw), urlsafe_b64encode(raw)):
            yield packed.decode().rstrip("=")


def _quoted(text: str) -> set[str]:
    """`text` as it is within quotes, and these within others: what servers quote libraries quote again."""
    forms = {text}
    for _ in range(_QUOTED):
        forms |= {json.dumps(each)[1:-1] for each in forms} | {repr(each)[1:-1] for each in forms}
        # Beside both kinds of quotes.
        forms |= {repr(each + "'\"")[1:-1].removesuffix("\\'\"") for each in forms}
    return forms


def _hush_logs() -> None:
    """Have no record of any logger of this process hold a secret, whichever handler it goes to."""
    make = logging.getLogRecordFactory()
    if getattr(make, "hushes", False):
        return

    def record(*places: Any, **names: Any) -> logging.LogRecord:
        made = make(*places, **names)
        try:
            said = made.getMessage()
        except Exception:  # noqa: BLE001 - logging itself tells of arguments that don't fit
            return made
        if (shown := without_secrets(said)) != said:
            made.msg, made.args = shown, None
        if made.exc_info and made.exc_info[1] is not None:
            error = hushed(made.exc_info[1])
            made.exc_info = (type(error), error, error.__traceback__)
        return made

    record.hushes = True  # pyright: ignore[reportFunctionMemberAccess]
    logging.setLogRecordFactory(record)

"""What a test expects of an error: its code, and the values that it names. No sentence: a better one costs no edit.

A text that has no code, such as a violation or why a row is set aside, is held to its values alone.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from calve.sink_core.errors import CalveError
from calve.sink_core.finding import FindingKind
from calve.sink_core.findings import FINDINGS


def finding(name: str) -> FindingKind:
    """The finding of a name, such as `rolled-back`. Raises KeyError if there is none."""
    return FINDINGS[name]


def number(code: str | FindingKind) -> str:
    """Such as `CLV-2103`, of a member of `Code` or of a finding."""
    return code.code if isinstance(code, FindingKind) else code


@contextmanager
def raises(
    code: str | FindingKind, *values: object, of: type[CalveError] = CalveError
) -> Generator[pytest.ExceptionInfo[CalveError]]:
    """Expect an error of the class `of` with this code that names each of the values, in its message or its hint.

    Values are what the test knows: names, offsets, numbers. The class is worth its place where errors of two classes,
    such as one that is tried again and one that is not, have the same code.
    """
    with pytest.raises(of) as raised:
        yield raised
    text = str(raised.value)
    # Its traceback has this frame: what its frames hold would stay until Python looks for cycles.
    del raised
    says(text, code, *values)


def says(text: str, code: str | FindingKind, *values: object) -> None:
    """Assert that the output of a command has an error of this code, and names each of the values."""
    assert f"[{number(code)}]" in text, f"not {number(code)}:\n{text}"
    holds(text, *values)


def holds(text: str, *values: object) -> None:
    """Assert that a text has each of the values, as a part of a word too."""
    missing = [str(value) for value in values if str(value) not in text]
    assert not missing, f"without {missing}:\n{text}"


def names(text: str, *values: object) -> None:
    """Assert that a text names each of the values, each as a word of its own: `5` is not in `b5`, nor in `4.5`."""
    missing = _missing(text, values)
    assert not missing, f"without {missing}:\n{text}"


class Naming:
    """Is equal to any text that names each of the values, and that begins with the field that it is `of`."""

    def __init__(self, *values: object, of: str = "") -> None:
        self._values = values
        self._of = of

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, str) or not other:
            return False
        return other.startswith(f"{self._of}: " if self._of else "") and not _missing(other, self._values)

    __hash__ = None

    def __repr__(self) -> str:
        return f"<text of {self._of or 'anything'} that names {', '.join(map(str, self._values)) or 'nothing'}>"


def _missing(text: str, values: tuple[object, ...]) -> list[str]:
    return [str(value) for value in values if not _has(text, str(value))]


def _has(text: str, value: str) -> bool:
    before = r"(?<![\w.,])" if re.match(r"\w", value) else ""
    after = r"(?!\w|[.,]\w)" if re.search(r"\w\Z", value) else ""
    return re.search(before + re.escape(value) + after, text) is not None

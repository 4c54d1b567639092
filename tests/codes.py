"""What a test expects of an error: its code, and the values that it names. No sentence: a better one costs no edit."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import pytest

from calve.sink_core.errors import CalveError
from calve.sink_core.finding import FindingKind
from calve.sink_core.findings import FINDINGS


class Coded(Protocol):
    """A row of `sink_core/error_codes/` or `sink_core/findings.py`."""

    @property
    def code(self) -> str: ...


def finding(name: str) -> FindingKind:
    """The finding of a name, such as `rolled-back`. Raises KeyError if there is none."""
    return FINDINGS[name]


@contextmanager
def raises(
    code: Coded, *values: object, of: type[CalveError] = CalveError
) -> Generator[pytest.ExceptionInfo[CalveError]]:
    """Expect an error of the class `of` with this code that names each of the values, in its message or its hint.

    Values are what the test knows: names, offsets, numbers. The class is worth its place where errors of two classes,
    such as one that is tried again and one that is not, have the same code.
    """
    with pytest.raises(of) as raised:
        yield raised
    says(str(raised.value), code, *values)


def says(text: str, code: Coded, *values: object) -> None:
    """Assert that the output of a command has an error of this code, and names each of the values."""
    missing = [str(value) for value in values if str(value) not in text]
    assert f"[{code.code}]" in text, f"not {code.code}:\n{text}"
    assert not missing, f"{code.code} without {missing}:\n{text}"

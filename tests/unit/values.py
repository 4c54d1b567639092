"""What a test expects of a text that has no code, such as a violation or why a row is set aside: the values in it."""

from __future__ import annotations

import re


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

"""Errors of libraries in one line that may be shown to a user."""

from __future__ import annotations

from typing import Any

from calve.sink_core.config.references import redact_text
from calve.sink_core.hidden import without_secrets

_CHARACTERS, _LOOKED_AT = 300, 10_000
"""Characters shown, and those that secrets are looked for in, so that none is cut before it is known."""


def describe(error: Exception) -> str:
    """The error's kind and its first line up to the first brace: pyiceberg ends some with all properties as a dict."""
    kind, line = type(error).__name__, _shown(_words(error).partition("{")[0])
    return f"{kind}: {line}" if line else kind


def first_line(error: Exception) -> str:
    """The error's first line, for libraries whose words name the kind themselves; the kind if there are none."""
    return _shown(_words(error)) or type(error).__name__


def of_record(error: Exception) -> str:
    """The error's first line as it stands, where it is about a record, which it may quote: there is no secret of ours
    in it to be looked for.
    """
    return str(error).strip().partition("\n")[0].rstrip() or type(error).__name__


def _words(error: Any) -> str:
    """Of SQLAlchemy's the driver's words, which quote no SQL; of py4j's the Java exception's, without class names. No
    secrets: in a part of the words a part of one would not be known as such.
    """
    if type(error).__module__.startswith("sqlalchemy."):
        return without_secrets(str(getattr(error, "orig", None) or ""))
    java = getattr(error, "java_exception", None)
    return without_secrets(str(error) if java is None else str(java.getMessage() or java))


def _shown(words: str) -> str:
    lines = words.strip().splitlines()
    return redact_text(lines[0].rstrip()[:_LOOKED_AT])[:_CHARACTERS] if lines else ""

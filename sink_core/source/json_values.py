"""Rows as JSON, from the values that a database's driver or a file's reader gives."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, cast

_FINER = re.compile(r"[.,]\d{7}").search
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def compact(values: Mapping[str, Any]) -> bytes:
    """JSON without spaces, fields in the order they have; values that JSON hasn't as `plain` has them.

    Raises ValueError for a text that is no Unicode, and for what is nested too deeply.
    """
    try:
        try:
            text = _JSON.encode(values)
        except ValueError:
            # NaN and Infinity, for which the encoder asks nobody.
            text = _JSON.encode(plain(values))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return text.encode()


def token(value: Any) -> bytes:
    """JSON of one value that is as `plain` has it. Raises ValueError for a text that is no Unicode."""
    return _JSON.encode(value).encode()


def plain(value: Any) -> Any:
    """A value that JSON has.

    Numbers, texts, true, false and null are themselves, decimals and floats that are no number texts, bytes base64,
    times ISO 8601, in UTC with a `Z` where they have a zone. What else there is is its text.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, Decimal):
        # As the database writes it: 0.0000001, not 1E-7.
        return f"{value:f}" if value.is_finite() else plain(float(value))
    if isinstance(value, datetime):
        return _iso(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        inner = cast(Mapping[object, object], value)
        return {str(name): plain(item) for name, item in inner.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast(Sequence[object], value)]
    return str(value)


def moment(value: Any) -> Any:
    """ISO 8601 of a time as a database has it; what Python has no time for stays as it is, such as `infinity`, and
    what has more digits than a time of Python.
    """
    try:
        return plain(value) if _FINER(value) else _iso(datetime.fromisoformat(value))
    except (ValueError, TypeError, OverflowError):
        return plain(value)


def _iso(value: datetime) -> str:
    try:
        return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        # In UTC it is before the year 1 or behind the year 9999.
        return value.isoformat()


# Made once: json.dumps makes one for each call.
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain)

"""Values of a driver as JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from calve.sink_core.source.json_values import compact, moment, plain

_UUID = "2bf5f0aa-fa35-4fd1-a4a1-307d2c2b9f33"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**63 - 1, 2**63 - 1),
        ("ü", "ü"),
        (0.1, 0.1),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E-7"), "0.0000001"),
        (Decimal("NaN"), "NaN"),
        (Decimal("-Infinity"), "-Infinity"),
        (datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC).replace(tzinfo=None), "2024-01-02T03:04:05.000006"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "2024-01-02T03:04:05Z"),
        (datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=5, minutes=30))), "2024-01-01T21:30:00Z"),
        (date(2024, 1, 2), "2024-01-02"),
        (time(3, 4), "03:04:00"),
        (UUID(_UUID), _UUID),
        (b"\x00\xff", "AP8="),
        (memoryview(b"\x00\xff"), "AP8="),
        ([1, None, math.nan], [1, None, "NaN"]),
        ({"a": {"b": [Decimal(1)]}}, {"a": {"b": ["1"]}}),
        (timedelta(days=1), "1 day, 0:00:00"),
    ],
)
def test_a_value_is_one_that_json_has(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert json.loads(compact({"value": plain(value)})) == {"value": expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-02 03:04:05.5+01", "2024-01-02T02:04:05.500000Z"),
        ("2024-01-02 03:04:05", "2024-01-02T03:04:05"),
        ("infinity", "infinity"),
        ("12000-01-01 00:00:00", "12000-01-01 00:00:00"),
        ("0044-03-15 00:00:00+00 BC", "0044-03-15 00:00:00+00 BC"),
        (None, None),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00Z"),
        (7, 7),
    ],
)
def test_a_time_that_a_database_wrote_is_iso_8601_if_python_has_it(text: Any, expected: Any) -> None:
    assert moment(text) == expected


def test_fields_keep_their_order_and_nothing_is_escaped() -> None:
    assert compact({"b": 1, "a": "é\n"}) == '{"b":1,"a":"é\\n"}'.encode()

"""Moments and offset ranges as people write them on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from calve.sink_core.codes import Code
from calve.sink_core.config.units import Duration
from calve.sink_core.errors import ConfigError
from calve.sink_core.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from calve.sink_core.sink.range_jobs.selected import Wanted

_PARTITION = r"(?P<topic>[\w.-]+)/(?P<partition>\d+)"
_RANGE = re.compile(rf"{_PARTITION}:(?P<start>\d+)-(?P<end>\d+)")
_OFFSET = re.compile(rf"{_PARTITION}:(?P<offset>\d+)")
_EPOCH = datetime.fromtimestamp(0, UTC)


def moment_ms(text: str, option: str) -> int:
    """An ISO 8601 moment with its zone, in milliseconds since 1970. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"{option}: {text!r} is not a time with its zone",
            hint="write one such as 2026-01-31T00:00:00Z",
            code=Code.NOT_A_TIME,
        )
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def moment_or_age_ms(text: str, option: str, now: datetime) -> int:
    """As `moment_ms`, or a duration such as `7d`: so long before `now`. Raises ConfigError."""
    try:
        age_s = TypeAdapter[float](Duration).validate_python(text)
    except ValueError:
        return moment_ms(text, option)
    return (now - _EPOCH) // timedelta(milliseconds=1) - round(age_s * 1000)


def duration_s(text: str, option: str) -> float:
    """A duration such as `5s`, in seconds; a bare number is seconds too. Raises ConfigError."""
    try:
        return TypeAdapter[float](Duration).validate_python(f"{text}s" if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise ConfigError(
            f"{option}: {text!r} is no duration", hint="write one such as 5s, 10m or 2h", code=Code.NOT_A_TIME
        ) from None


def offset_range(text: str, option: str = "--range") -> OffsetRange:
    """`topic/partition:start-end`, the end not included. Raises ConfigError."""
    found = _RANGE.fullmatch(text)
    if found is None or int(found["start"]) >= int(found["end"]):
        raise ConfigError(
            f"{option}: {text!r} is not a range",
            hint="write one such as flights/0:100-200; 200 is not in it",
            code=Code.NOT_A_TIME,
        )
    return OffsetRange(found["topic"], int(found["partition"]), int(found["start"]), int(found["end"]))


def one_offset(text: str) -> tuple[TopicPartition, int]:
    """`topic/partition:offset`. Raises ConfigError."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is not an offset", hint="write one such as flights/0:100", code=Code.NOT_A_TIME)
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


def span(from_: str | None, to: str | None, ranges: Sequence[str], *, names: tuple[str, str, str]) -> Wanted | None:
    """What a replay replaces; None if nothing is said of it. `names` are those of the three options. Raises
    ConfigError.
    """
    from calve.sink_core.sink.range_jobs.selected import Wanted

    if from_ is None and to is None and not ranges:
        return None
    now, (from_name, to_name, ranges_name) = datetime.now(UTC), names
    return Wanted(
        moment_or_age_ms(from_, from_name, now) if from_ is not None else None,
        moment_or_age_ms(to, to_name, now) if to is not None else None,
        tuple(offset_range(text, ranges_name) for text in ranges),
    )

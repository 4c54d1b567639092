"""What decoding gives, whatever the format: columns for the records that fit a table, a verdict for each other one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from calve.sink_core.errors import printable

DECODE = "decode"
"""Stage of a value that isn't of the format."""
FIT = "fit"
"""Stage of a value of the format that doesn't fit the table's schema."""

TRANSFORM = "transform"
"""Stage of a value that the table's SQL fails on."""

_MESSAGE_LENGTH = 200


@dataclass(frozen=True, slots=True)
class BadValue:
    """A value that has no row. `index` is its place among the values given; `message` has at most 200 characters."""

    index: int
    stage: str
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`columns` has one row for each good value, in order. `good` are their indices, None if all values are good.

    `wanted` are fields that some of the values need and the table lacks, if it may be given them (`columns/evolution`).
    `dropped` are those that have no column, by dotted name with how many values they have; where records have schemas,
    how many records' schemas have them.
    """

    columns: pa.RecordBatch
    good: list[int] | None
    bad: tuple[BadValue, ...]
    wanted: Schema | None = None
    dropped: Mapping[str, int] = field(default_factory=dict[str, int])


class Decoder(Protocol):
    """Decodes the values of records for one table."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Decode `values`; a bad one is reported with its index and doesn't touch the others.

        Raises Unreachable or ConfigError if something the format needs can't be had, such as a schema of a registry.
        """
        ...


def cut(message: str) -> str:
    """The message, no longer than a verdict may be, and as it may be stored and shown: records say what they like."""
    message = printable(message[: _MESSAGE_LENGTH + 1])
    return message if len(message) <= _MESSAGE_LENGTH else message[: _MESSAGE_LENGTH - 1] + "…"


def placed(decoded: Decoded, places: Sequence[int], bad: Mapping[int, BadValue]) -> Decoded:
    """What was decoded of the values at `places`, as a verdict on all values; `bad` are the others, by place."""
    all_bad = {**bad, **{places[value.index]: replace(value, index=places[value.index]) for value in decoded.bad}}
    good = list(places) if decoded.good is None else [places[i] for i in decoded.good]
    in_place = tuple(all_bad[place] for place in sorted(all_bad))
    return Decoded(decoded.columns, good, in_place, dropped=decoded.dropped)


def sifted(decoded: Decoded, unfit: Mapping[int, str], left_out: Sequence[int] = ()) -> Decoded:
    """The same without some of the rows, by their number among the good ones: `unfit` ones are bad, for a reason each,
    and those `left_out` neither good nor bad.
    """
    if not unfit and not left_out:
        return decoded
    places = np.arange(len(decoded.columns)) if decoded.good is None else np.array(decoded.good, np.int64)
    bad = [*decoded.bad, *(BadValue(int(places[row]), FIT, cut(message)) for row, message in unfit.items())]
    left = np.delete(np.arange(len(decoded.columns)), [*unfit, *left_out])
    columns = decoded.columns.take(pa.array(left))
    in_order = tuple(sorted(bad, key=lambda verdict: verdict.index))
    return replace(decoded, columns=columns, good=places[left].tolist(), bad=in_order)


def in_order(pieces: Iterable[tuple[Sequence[int], pa.RecordBatch]]) -> tuple[list[int], pa.RecordBatch]:
    """Rows decoded in pieces, each with the places of its values, in the order of their places; one piece at least."""
    parts = list(pieces)
    places = [place for part, _ in parts for place in part]
    batch = pa.concat_batches([batch for _, batch in parts])
    order = np.argsort(places)
    return sorted(places), batch if not batch.num_columns else batch.take(pa.array(order))

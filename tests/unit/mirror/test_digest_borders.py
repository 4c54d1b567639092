"""A digest is of records in their order, however they come in batches, and no two of these are taken for one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from calve.sink_core.mirror.digest import Digest, Headers

Record = tuple[bytes | None, bytes | None, int, Headers]

RECORDS: list[Record] = [
    (None, b"a", 1, None),
    (None, b"", 2, None),
    (None, None, 3, None),
    (b"k", b"b", 4, [("h", b"1"), ("h", None)]),
    (b"", b"c", 5, []),
    (b"kk", None, 6, [("", b"")]),
    (None, b"d", 7, None),
]


def digest(records: list[Record], *borders: int) -> int:
    found = Digest()
    for start, end in pairwise((0, *borders, len(records))):
        keys, values, times, headers = zip(*records[start:end], strict=True)
        found.add(list(keys), list(values), list(times), list(headers))
    return found.value


@pytest.mark.parametrize("borders", [(1,), (3,), (2, 3), (1, 2, 3, 4, 5, 6)])
def test_the_borders_of_batches_do_not_show(borders: tuple[int, ...]) -> None:
    assert digest(RECORDS, *borders) == digest(RECORDS)


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (0, (b"", b"a", 1, None)),
        (0, (None, b"", 1, None)),
        (1, (None, None, 2, None)),
        (2, (None, None, 9, None)),
        (3, (b"k", b"b", 4, [("h", None), ("h", b"1")])),
        (4, (None, b"c", 5, [])),
        (6, (b"d", None, 7, None)),
    ],
)
def test_another_record_is_another_digest(place: int, other: Record) -> None:
    assert digest([*RECORDS[:place], other, *RECORDS[place + 1 :]]) != digest(RECORDS)


def test_a_column_without_a_value_is_told_from_one_of_empty_values() -> None:
    nothing: list[Record] = [(None, None, 1, None)] * 3
    assert len({digest(nothing), digest([(b"", None, 1, None)] * 3), digest([(None, b"", 1, None)] * 3)}) == 3

"""What a snapshot has seen."""

from __future__ import annotations

import pytest

from calve.sink_core.source.postgres.visibility import TableSnapshot, lsn_of, lsn_text

# Transactions 7 and 9 are at work, 10 and later have not begun.
SNAPSHOT = TableSnapshot("7:10:7,9", lsn=500)
WRAPPED = TableSnapshot(f"{2**32 - 2}:{2**32 + 3}:{2**32 - 2},{2**32 + 1}", lsn=500)


@pytest.mark.parametrize(
    ("xid", "commit_lsn", "saw"),
    [
        (6, 400, True),
        (8, 400, True),
        (7, 400, False),
        (9, 400, False),
        (10, 400, False),
        # What commits behind the snapshot is not in it, whatever its number says once numbers come again.
        (6, 500, False),
    ],
)
def test_what_was_over_by_then_is_seen(xid: int, commit_lsn: int, saw: bool) -> None:
    assert SNAPSHOT.saw(xid, commit_lsn) is saw


@pytest.mark.parametrize(
    ("xid", "saw"), [(2**32 - 3, True), (2**32 - 2, False), (2**32 - 1, True), (1, False), (2, True), (3, False)]
)
def test_numbers_that_began_again_are_told_apart(xid: int, saw: bool) -> None:
    assert WRAPPED.saw(xid, 400) is saw


def test_places_are_written_as_postgresql_writes_them() -> None:
    assert lsn_of("16/B374D848") == 0x16B374D848
    assert lsn_text(lsn_of("16/B374D848")) == "16/B374D848"
    assert lsn_text(0) == "0/0"

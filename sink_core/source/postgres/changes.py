"""`LogPart`: the changes in a part of the log as rows, with the offset behind each so many of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from calve.sink_core.source.base import BadRow, Record, Rows
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.postgres.pgoutput import Change, Committed, Decoder
from calve.sink_core.source.postgres.visibility import lsn_text

AT_LEAST, AT_MOST = 10_000, 50_000
"""Changes between two offsets: at the first commit from so many on, and within a transaction after so many."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """From behind the change `skipped` of the transaction that commits at `first`, up to the last transaction that
    commits before `upto`, or that has the `most`-th message.
    """

    timeline: int
    first: int
    skipped: int
    upto: int
    most: int

    def rows(
        self, messages: Iterable[tuple[int, bytes]], decoder: Decoder, wants: Callable[[Change], bool]
    ) -> Iterator[Rows]:
        """The changes in `messages`, without those that nobody `wants`."""
        done, piece, number = self.first, _Piece(), 0
        for lsn, message in messages:
            number += 1
            for change in decoder.read(lsn, message):
                if change.commit_lsn >= self.upto:
                    # A transaction that commits behind the bound is another batch's.
                    yield piece.rows(self._offset(self.upto, 0))
                    return
                if isinstance(change, Committed):
                    done = max(done, change.end_lsn)
                    if len(piece) >= AT_LEAST:
                        yield piece.rows(self._offset(change.end_lsn, 0))
                        piece = _Piece()
                elif (change.commit_lsn, change.seq) > (self.first, self.skipped):
                    piece.take(change, wanted=wants(change))
                    if len(piece) >= AT_MOST:
                        yield piece.rows(self._offset(change.commit_lsn, change.seq))
                        piece = _Piece()
        # Cut off by the number of messages, behind a whole transaction; else all is read that committed before `upto`.
        yield piece.rows(self._offset(done if number >= self.most else self.upto, 0))

    def _offset(self, lsn: int, seq: int) -> FlatMap:
        return FlatMap({"lsn": lsn_text(lsn), "seq": seq, "timeline": self.timeline})


class _Piece:
    """What is read since the last offset."""

    def __init__(self) -> None:
        self._records, self._bad, self._dropped, self._changes = list[Record](), list[BadRow](), 0, 0

    def __len__(self) -> int:
        return self._changes

    def take(self, change: Change, *, wanted: bool) -> None:
        self._changes += 1
        if wanted:
            self._records += change.records
            self._bad += change.bad
        else:
            self._dropped += 1

    def rows(self, offset: FlatMap) -> Rows:
        return Rows(offset, self._records, self._bad, self._dropped)

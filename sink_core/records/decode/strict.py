"""Records with fields that no column takes as dead letters, whatever their format: `unknown_fields: dead_letter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calve.sink_core.records.decode.bisection import Part, bisect
from calve.sink_core.records.decode.decoded import Decoded, Decoder, sifted

_WITHIN_MANY = (".element.", ".value.")


class _InSome(Exception):
    """Some of the records have a field that no column takes."""


class StrictDecoder:
    """Decodes as another decoder does. What that one would leave a field out of is bad, and the field is named."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """As `Decoder.decode`; nothing is dropped."""
        decoded = self._decoder.decode(values)
        if not decoded.dropped:
            return decoded
        good = range(len(values)) if decoded.good is None else decoded.good

        def named(part: Part) -> list[str]:
            # What was dropped of all is known already.
            again = len(part) < len(values)
            found = self._decoder.decode([values[good[row]] for row in part]).dropped if again else decoded.dropped
            in_each = _in_each(found, len(part))
            if found and not in_each:
                raise _InSome
            return in_each

        alike, _ = bisect(len(good), named, _InSome)
        unfit = {row: f"{min(names)}: no column takes it" for part, names in alike if names for row in part}
        return replace(sifted(decoded, unfit), dropped={})


def _in_each(dropped: Mapping[str, int], records: int) -> list[str]:
    """Fields that each of so many records has. One has several values of a field only within lists and maps."""
    if records == 1:
        return list(dropped)
    return [n for n, number in dropped.items() if number == records and not any(many in n for many in _WITHIN_MANY)]

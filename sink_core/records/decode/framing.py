"""How a value says which schema it was written with."""

from __future__ import annotations

from typing import Protocol, TypeVar


class Named(Protocol):
    """A schema made ready for reading. `unfit` says why its values can't be rows; None if they can."""

    @property
    def name(self) -> str: ...

    @property
    def unfit(self) -> str | None: ...


S_co = TypeVar("S_co", bound=Named, covariant=True)


class Framing(Protocol[S_co]):
    """Where a record's data begins in a value, and what it was written with."""

    @property
    def header_bytes(self) -> int: ...

    def writer_of(self, value: bytes) -> S_co:
        """The schema of a value. Raises ValueError saying what is wrong with it, Unreachable and ConfigError."""
        ...

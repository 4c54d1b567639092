"""Where files of a table may lie: below its location, and where its properties put data and metadata. Pure."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def folder(location: str) -> str:
    """A location that ends in one slash: `/a/b` is not within `/a/bc`."""
    return f"{location.rstrip('/')}/"


def locations(metadata: TableMetadata) -> list[str]:
    """The folders that files of the table are in, none within another."""
    own = folder(metadata.location)
    elsewhere = (metadata.properties.get(key) for key in ("write.data.path", "write.metadata.path"))
    return [own, *(folder(place) for place in elsewhere if place and not folder(place).startswith(own))]


def is_within(path: str, metadata: TableMetadata) -> bool:
    """Whether a file of that path would lie in one of the table's locations, however storage reads it."""
    for location in map(plain, locations(metadata)):
        # What an operator calls the location may have any parts.
        below = plain(path).removeprefix(location).replace("\\", "/")
        if plain(path).startswith(location) and ".." not in below.split("/"):
            return True
    return False


def plain(location: str) -> str:
    """`file:/a`, `file:///a` and `/a` are one place; `s3://` and `s3a://` too."""
    scheme, _, rest = location.partition(":")
    if not rest:
        return location
    path = f"/{rest.lstrip('/')}"
    return path if scheme == "file" else f"{_SCHEMES.get(scheme, scheme)}:{path}"

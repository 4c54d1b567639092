"""Addresses with a user, a password or parameters: what comes into one from elsewhere is encoded for its place.

`scheme://user:password@host:port/path?name=value`. A password may hold any character; in an address each but letters,
digits and a few marks has to be written as `%XX`, or the rest of it is taken for the host, and told as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from calve.sink_core.hidden import keep_secret

REFERENCE = re.compile(r"\$\{ENV:([A-Za-z_][A-Za-z0-9_]*)\}")
"""What stands for a value of the environment."""

_AFTER_SCHEME = "://"
# A question mark alone may be of a password.
_PARAMETERS = re.compile(r"\?[A-Za-z_][\w.-]*=")
_UNFIT = re.compile(r"%(?![0-9A-Fa-f]{2})|[^A-Za-z0-9._~!$&'()*+,;=%-]")


def for_place(text: str, at: int, value: str) -> str:
    """`value`, which takes the place of the reference that begins at `at` of `text`, as it has to be written there.

    That is encoded in user, password and parameters, and kept secret if it is no user's name. An address as a whole, a
    host and a path are taken as they are.
    """
    start = text.find(_AFTER_SCHEME) + len(_AFTER_SCHEME)
    if not len(_AFTER_SCHEME) <= start <= at:
        return value
    masked = REFERENCE.sub(lambda match: "x" * len(match[0]), text)
    host_end = start + len(re.split(r"[/?#;]", masked[start:], maxsplit=1)[0])
    info_end = masked.rfind("@", start, host_end)
    if at < info_end:
        if ":" in masked[start:at]:
            keep_secret(value)
        # `user:password` may be one reference.
        return quote(value, safe="" if ":" in masked[start:info_end] else ":")
    if at > host_end and re.search(r"[?;]", masked[host_end:at]):
        keep_secret(value)
        return quote(value, safe="")
    return value


def is_address(text: str) -> bool:
    """Whether a text, which may have references, is one: what of it is a secret its place says (`for_place`)."""
    return _AFTER_SCHEME in text


def encoded(address: str) -> str:
    """An address whose user and password, which may have been written as they are, are encoded. As SQLAlchemy reads it:
    what stands before the last `@` is of them. The password is kept secret.
    """
    scheme, separator, rest = address.partition(_AFTER_SCHEME)
    begin = _PARAMETERS.search(rest)
    cut = begin.start() if begin is not None and "@" in rest[: begin.start()] else len(rest)
    info, at, place = rest[:cut].rpartition("@")
    if not separator or not at or info.startswith("/"):
        return address
    user, colon, password = info.partition(":")
    keep_secret(password, unquote(password))
    return f"{scheme}{_AFTER_SCHEME}{_fit(user)}{colon}{_fit(password)}@{place}{rest[cut:]}"


def address_of(
    scheme: str,
    host: str,
    path: str,
    *,
    port: int | None,
    user: str | None,
    password: str | None,
    parameters: Mapping[str, str],
) -> str:
    """An address of its parts, in which references stay as they are."""
    info = "" if user is None else _quoted(user) + ("" if password is None else f":{_quoted(password)}") + "@"
    query = "&".join(f"{quote(name)}={_quoted(value)}" for name, value in parameters.items())
    return f"{scheme}://{info}{host}{f':{port}' if port else ''}/{path}{f'?{query}' if query else ''}"


def _quoted(text: str) -> str:
    """`text` with all but its references encoded."""
    references = [match[0] for match in REFERENCE.finditer(text)]
    between = REFERENCE.split(text)[:: REFERENCE.groups + 1]
    return "".join(quote(each, safe="") + found for each, found in zip(between, [*references, ""], strict=True))


def _fit(text: str) -> str:
    """`text` with what can't stand in user or password encoded; what is encoded already stays."""
    return _UNFIT.sub(lambda match: quote(match[0], safe=""), text)

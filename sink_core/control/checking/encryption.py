"""Which connections of a pipeline leave this machine without TLS, or with TLS that checks no certificate."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from calve.sink_core.config.effective import Pipeline
from calve.sink_core.config.references import resolve
from calve.sink_core.control.checking.checklist import Note
from calve.sink_core.errors import ConfigError

HINT = "docs/security.md says what to set for each connection"

_TLS_OF_A_DRIVER = re.compile(r"ssl|tls|encrypt", re.IGNORECASE)
# Any other value may be a secret in the wrong place: it is not shown, and the server's library refuses it.
_OPEN_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT")
_UNCHECKED_MODES = ("disable", "allow", "prefer", "require")
_LOCAL = ("localhost", "localhost.localdomain")


def encryption(pipeline: Pipeline) -> str | Note:
    """What is said of a pipeline's connections: a note with the setting of each that is open to who listens."""
    open_ones = list(exposed(pipeline.describe()["connections"]))
    if open_ones:
        return Note("; ".join(open_ones), HINT)
    return "what leaves this machine is encrypted, and certificates are checked"


def exposed(connections: Mapping[str, Any]) -> Iterator[str]:
    """A part of a sentence for each connection that somebody between can read or answer in place of the server.

    `connections` has section → name → keys, as `Pipeline.describe` gives them. No value but that of a mode is named.
    """
    for section, of_section in _SECTIONS.items():
        for name, properties in connections.get(section, {}).items():
            # An unset variable is another check's to tell.
            with suppress(ConfigError):
                asked = {key: value for key, value in properties.items() if key in _KEYS and value is not None}
                for why in of_section(resolve(asked)):
                    yield f"{section} {name}: {why}"


def is_local(host: str | None) -> bool:
    """Whether what is sent to `host`, a name, an address or the path of a socket, stays on this machine."""
    if not host or host.startswith("/") or host in _LOCAL:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _kafka(properties: Mapping[str, Any]) -> Iterator[str]:
    servers = str(properties.get("bootstrap.servers", "")).split(",")
    if all(is_local(_host(f"//{server.strip().rpartition('://')[2]}")) for server in servers):
        return
    protocol = str(properties.get("security.protocol", "plaintext")).upper()
    if protocol in _OPEN_PROTOCOLS:
        yield f"security.protocol is {protocol}, not SASL_SSL or SSL"
    elif str(properties.get("enable.ssl.certificate.verification", True)).lower() == "false":
        yield "enable.ssl.certificate.verification is false"


def _service(properties: Mapping[str, Any]) -> Iterator[str]:
    """By HTTP, or Spark's."""
    for key in ("url", "uri", "s3.endpoint", "remote"):
        for address in str(properties.get(key, "")).split(","):
            scheme, host = address.partition("://")[0].strip(), _host(address.strip())
            if scheme == "http" and not is_local(host):
                yield f"{key} is http, not https"
            elif scheme == "sc" and not is_local(host) and "use_ssl=true" not in address:
                yield f"{key} has no use_ssl=true"


def _catalog(properties: Mapping[str, Any]) -> Iterator[str]:
    yield from _service(properties)
    if properties.get("type") == "sql":
        yield from _database({"url": properties.get("uri")})


def _database(properties: Mapping[str, Any]) -> Iterator[str]:
    try:
        url = make_url(str(properties["url"]))
    except (ArgumentError, ValueError):
        return
    # Parameters of libpq may name the host in the address's place; several values come as a tuple.
    hosts = url.query.get("host", url.host or "")
    if all(is_local(h) for h in (hosts if isinstance(hosts, tuple) else (hosts,))):
        return
    if url.get_backend_name() == "postgresql":
        mode = url.query.get("sslmode", "prefer")
        if mode in _UNCHECKED_MODES:
            yield f"sslmode is {mode}, not verify-full"
    elif not any(_TLS_OF_A_DRIVER.search(name) for name in url.query):
        yield "its parameters name no TLS"


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


_SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "kafka": _kafka,
    "registry": _service,
    "catalog": _catalog,
    "database": _database,
    "spark": _service,
}
_KEYS = (
    *("bootstrap.servers", "security.protocol", "enable.ssl.certificate.verification"),
    *("type", "url", "uri", "s3.endpoint", "remote"),
)

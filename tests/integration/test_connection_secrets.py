"""Each kind of connection with passwords of any characters, refused and without an answer: nothing that is said, raised
or logged holds them, in any form that libraries give them.
"""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.config.references import resolve
from calve.sink_core.detached import HOST
from calve.sink_core.hidden import hushing
from calve.sink_core.iceberg.catalog.opening import open_catalog, unreachable_as_ours
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import reported
from calve.sink_core.records.decode import registry
from calve.sink_core.source.postgres import connecting
from calve.sink_core.source.tables.database import Database
from tests.codes import raises

VARIABLE = "CALVE_TEST_SOWN"
PLANTED = "PLANTED"
REFERENCE = f"${{ENV:{VARIABLE}}}"
SECRETS = {
    "percent": "PLANTED%x9",
    "slash": "PLANTED/x9",
    "at": "x@PLANTED #?y",
    "quotes": "PLANTED{x9}'\"\\:=&;",
}


class Echo(BaseHTTPRequestHandler):
    """Lets nobody in, and says what it was sent."""

    def answer(self) -> None:
        sent = {name: value for name, value in self.headers.items() if name != "Host"}
        told = {"message": f"not with {sent}", "type": "NotAuthorizedException", "code": 401}
        body = json.dumps({**told, "error_code": 401, "error": told}).encode()
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_HEAD = answer  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        """Nothing: it is not Calve's."""


@pytest.fixture(scope="module", params=["refused", "no answer"])
def place(request: pytest.FixtureRequest) -> Generator[str]:
    """`host:port` where somebody refuses, and where nobody is."""
    if request.param == "no answer":
        yield f"{HOST}:1"
        return
    with ThreadingHTTPServer((HOST, 0), Echo) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"{HOST}:{server.server_port}"
        server.shutdown()


def ask_registry(place: str, **properties: str) -> None:
    settings = {"url": f"http://{place}", "max.retries": 0, **properties}
    registry.Registry(RegistrySettings("main", settings)).types()


def ask_catalog(place: str, **properties: Any) -> None:
    settings = {"type": "rest", "uri": f"http://{place}", "warehouse": "w", **properties}
    with unreachable_as_ours("asking"):
        open_catalog(CatalogSettings("lake", settings, {})).list_namespaces()


def ask_kafka(place: str, **properties: str) -> None:
    settings = {"bootstrap.servers": place, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with reported("asking"):
        clients.admin({**settings, "sasl.username": "ann", **properties}).list_topics(timeout=0.3)


def ask_log(place: str, address: str) -> None:
    url = resolve({"url": address.replace(PLACE, place)})["url"]
    with connecting.reported(url):
        connecting.connected(url)


def ask_tables(place: str, address: str) -> None:
    _ = Database(resolve({"url": address.replace(PLACE, place)})["url"]).fingerprint


PLACE = "HERE"
OF_POSTGRES = f"postgresql://ann:{REFERENCE}@{PLACE}/shop?connect_timeout=2"
WAYS: dict[str, Callable[[str], None]] = {
    "registry, basic": lambda place: ask_registry(place, **{"basic.auth.user.info": f"ann:{REFERENCE}"}),
    "registry, bearer": lambda place: ask_registry(
        place,
        **{
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": REFERENCE,
            "bearer.auth.logical.cluster": "c",
            "bearer.auth.identity.pool.id": "p",
        },
    ),
    "registry, address": lambda place: ask_registry(place, url=f"http://ann:{REFERENCE}@{place}"),
    "REST catalog, token": lambda place: ask_catalog(place, token=REFERENCE),
    "REST catalog, credential": lambda place: ask_catalog(
        place, credential=f"ann:{REFERENCE}", **{"oauth2-server-uri": f"http://{place}/tokens"}
    ),
    "REST catalog, header": lambda place: ask_catalog(place, **{"header.Authorization": f"Basic {REFERENCE}"}),
    "REST catalog, cookie": lambda place: ask_catalog(place, **{"header.Cookie": REFERENCE}),
    "REST catalog, address": lambda place: ask_catalog(place, uri=f"http://ann:{REFERENCE}@{place}"),
    "REST catalog, basic": lambda place: ask_catalog(
        place, auth={"type": "basic", "basic": {"username": "ann", "password": REFERENCE}}
    ),
    "SQL catalog": lambda place: ask_catalog(place, type="sql", uri=OF_POSTGRES.replace(PLACE, place)),
    "Kafka": lambda place: ask_kafka(place, **{"sasl.password": REFERENCE}),
    "Kafka, swapped": lambda place: ask_kafka(
        place, **{"sasl.password": "SASL_PLAINTEXT", "security.protocol": REFERENCE}
    ),
    "Kafka, misspelled": lambda place: ask_kafka(place, **{"sasl.pasword": REFERENCE}),
    "PostgreSQL's log": lambda place: ask_log(place, OF_POSTGRES),
    "PostgreSQL's log, all of it": lambda place: ask_log(place, REFERENCE),
    "tables by query": lambda place: ask_tables(place, OF_POSTGRES),
    "tables by query, all of it": lambda place: ask_tables(place, REFERENCE),
}


def parts(secret: str) -> set[str]:
    """What nobody may see: the planted word, and what encodings make of the secret alone and with its user."""
    pairs = (secret, f"ann:{secret}")
    encoded = {b64encode(each.encode()).decode().rstrip("=") for each in pairs}
    return {PLANTED, *encoded, *(quote(each, safe="") for each in pairs)}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_nothing_that_is_said_holds_a_part_of_it(
    way: Callable[[str], None],
    secret: str,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(VARIABLE, secret)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception) as raised, hushing():  # noqa: PT011 - whatever it is
        way(place)
    said = "".join(traceback.format_exception(raised.value))
    printed = capfd.readouterr()
    everything = "\n".join((said, repr(raised.value), caplog.text, printed.out, printed.err))
    assert {part for part in parts(secret) if part in everything} == set(), everything
    assert "CLV-" in said, "it is told as Calve's own"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_one_that_ends_in_a_line_break_is_refused_by_its_name(
    way: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "PLANTED\n")
    with raises(Code.ENDS_BLANK, VARIABLE) as raised:
        way(f"{HOST}:1")
    assert PLANTED not in str(raised.value).replace(VARIABLE, "")

"""What a registry hands out has its measure: texts, schemas that refer to each other, and ids that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calve.sink_core.codes import Code
from calve.sink_core.config.reading import RegistrySettings, ValueSettings
from calve.sink_core.detached import HOST
from calve.sink_core.records.avro.format import avro_format
from calve.sink_core.records.columns.budget import MOST_CHARACTERS, MOST_LEVELS
from calve.sink_core.records.decode.decoded import DECODE
from calve.sink_core.records.decode.registry import MOST_UNKNOWN
from calve.sink_core.records.protobuf.format import protobuf_format
from tests.codes import Naming, names, raises
from tests.unit.records.decode.outcomes import outcomes
from tests.unit.records.hostile_schemas import chain, record, twice, twice_of_messages

ID = Schema(NestedField(1, "id", LongType(), required=False))
GOOD = 1


@dataclass
class Handed:
    """What a registry hands out, by the path that is asked for, and which ones were."""

    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    asked: list[str] = field(default_factory=list[str])
    url: str = ""

    def schema(self, number: int, text: object, kind: str = "AVRO", references: tuple[str, ...] = ()) -> None:
        """A schema by id, which refers to version 1 of subjects."""
        body = text if isinstance(text, str) else json.dumps(text)
        refers = [{"name": name, "subject": name, "version": 1} for name in references]
        answer = {"schema": body, "schemaType": kind, "references": refers}
        self.answers[f"/schemas/ids/{number}"] = answer
        self.answers[f"/subjects/S{number}/versions/1"] = {**answer, "subject": f"S{number}", "version": 1, "id": 1}


@pytest.fixture
def handed() -> Generator[Handed]:
    with _serving(Handed()) as registry:
        registry.schema(GOOD, record(id="long"))
        yield registry


def format_of(registry: Handed, kind: str = "avro") -> Any:
    settings = ValueSettings(kind, registry=RegistrySettings("main", {"url": registry.url, "max.retries": 0}))
    return avro_format(settings) if kind == "avro" else protobuf_format(settings)


def framed(number: int, data: bytes = b"\x0a") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (record(r=twice(15)), "20,000"),
        (chain(90), "50"),
        ({**record(id="long"), "doc": "x" * MOST_CHARACTERS}, f"{MOST_CHARACTERS:,}"),
    ],
    ids=["fields", "levels", "text"],
)
def test_records_of_a_schema_beyond_the_budget_are_dead_letters_beside_others(
    handed: Handed, text: object, named: str
) -> None:
    handed.schema(7, text)
    avro = format_of(handed)
    found = outcomes(avro.decoder(ID).decode([framed(7), framed(GOOD), framed(7)]), 3)
    assert found == [(DECODE, Naming("schema id 7", named)), {"id": 5}, (DECODE, Naming("schema id 7", named))]
    # A new table is made of the others as well.
    assert avro.columns(lambda: [framed(7), framed(GOOD)]).column_names == ["id"]
    with raises(Code.NO_SAMPLE, "schema id 7", named):
        avro.columns(lambda: [framed(7)])


def test_messages_beyond_the_budget_are_dead_letters_whatever_their_number_is_written_as(handed: Handed) -> None:
    handed.schema(7, twice_of_messages(15), "PROTOBUF")
    decoder = format_of(handed, "protobuf").decoder(ID)
    found = outcomes(decoder.decode([framed(7, b"\0"), framed(7, b"\x02\x80\0"), framed(7, b"\x02\x1e")]), 3)
    assert found == [(DECODE, Naming("schema id 7", "20,000"))] * 2 + [{"id": None}]


def test_schemas_that_refer_to_each_other_have_an_end(handed: Handed) -> None:
    for number in range(2, 200):
        handed.schema(number, "{}", references=(f"S{number + 1}",))
    handed.schema(300, record(id="long"), references=("S301",))
    handed.schema(301, {**record(), "name": "Other"}, references=("S301",))
    found = outcomes(format_of(handed).decoder(ID).decode([framed(2), framed(300)]), 2)
    assert found == [(DECODE, Naming("schema id 2", MOST_LEVELS)), {"id": 5}]
    assert len(handed.asked) < 2 * MOST_LEVELS


def test_texts_of_references_count(handed: Handed) -> None:
    handed.schema(2, {**record(), "name": "Other", "doc": "x" * (MOST_CHARACTERS // 2)})
    handed.schema(3, {**record(id="long"), "doc": "x" * (MOST_CHARACTERS // 2)}, references=("S2",))
    [(stage, message)] = outcomes(format_of(handed).decoder(ID).decode([framed(3)]), 1)
    assert stage == DECODE
    names(message, "schema id 3", f"{MOST_CHARACTERS:,}")


def test_ids_that_nobody_registered_are_not_a_request_each_for_ever(handed: Handed) -> None:
    values = [framed(GOOD), *(framed(1_000 + i) for i in range(3 * MOST_UNKNOWN)), framed(GOOD)]
    found = outcomes(format_of(handed).decoder(ID).decode(values), len(values))
    assert (found[0], found[-1]) == ({"id": 5}, {"id": 5})
    assert found[1] == (DECODE, Naming("schema id 1000", "main"))
    assert found[-2] == (DECODE, Naming(f"schema id {999 + 3 * MOST_UNKNOWN}", MOST_UNKNOWN))
    assert len(handed.asked) == 1 + MOST_UNKNOWN


@contextmanager
def _serving(registry: Handed) -> Generator[Handed]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            registry.asked.append(path)
            answer = registry.answers.get(path)
            body = json.dumps(answer or {"error_code": 40403, "message": "not found"}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            registry.url = f"http://{HOST}:{server.server_port}"
            yield registry
        finally:
            server.shutdown()
            thread.join()

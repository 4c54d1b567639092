"""A real schema registry with Confluent's API, Apicurio's, and records in Confluent's wire format."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from calve.sink_core.detached import HOST
from calve.sink_core.jars import JarSet, resolve
from calve.sink_core.java import find_java
from tests import support

# The last one that runs on Java 17.
APICURIO = JarSet("apicurio", archives=("io.apicurio:apicurio-registry-app:3.0.9:all",))
START_S = 90.0


@dataclass
class SchemaRegistry:
    """The server; schemas are in a file of `directory`, so it has them and its port still when started again."""

    directory: Path
    port: int = field(default_factory=support.steady_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        [program] = [path for path in resolve(APICURIO) if path.name.endswith("-runner.jar")]
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "QUARKUS_HTTP_HOST": HOST,
            "QUARKUS_HTTP_PORT": str(self.port),
            "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{self.directory / 'schemas'}",
        }
        with (self.directory / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(find_java()), "-Xmx300m", *support.SHORT_LIVED, "-jar", str(program)],
                env={**os.environ, **settings},
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "registry.log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def stop(self) -> None:
        """In order, so that its schemas are in the file; nothing if it doesn't run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Answer nothing any more, until `stop`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def register(
        self, subject: str, schema: Mapping[str, Any] | str, references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """Register a schema that may refer to (name, subject, version); returns its id."""
        refers = [SchemaReference(name, to, version) for name, to, version in references]
        with SchemaRegistryClient({"url": self.url}) as client:
            return client.register_schema(subject, Schema(json.dumps(schema), "AVRO", refers))

    def register_text(self, subject: str, kind: str, text: str, references: Sequence[tuple[str, str, int]] = ()) -> int:
        """Register a schema of another kind, JSON or PROTOBUF, that may refer to (name, subject, version)."""
        refers = [SchemaReference(name, to, version) for name, to, version in references]
        with SchemaRegistryClient({"url": self.url}) as client:
            return client.register_schema(subject, Schema(text, kind, refers))

    def register_json_schema(self, subject: str) -> int:
        """A schema that isn't Avro."""
        return self.register_text(
            subject, "JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
        )

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/schemas/types", timeout=2) as answer:  # noqa: S310
            return answer.status == 200
        return False


def plain(schema: Mapping[str, Any] | str, record: object) -> bytes:
    """The record in Avro, without a header."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


def framed(schema_id: int, data: bytes) -> bytes:
    """Data in Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + data


@contextmanager
def busy(url: str, status: int, times: int) -> Generator[str]:
    """The address of a server that answers each path `times` times with `status`, and then as the registry at `url`."""
    asked = Counter[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            code, body = (status, b'{"error_code": 0, "message": "busy"}') if asked[self.path] <= times else self.ask()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def ask(self) -> tuple[int, bytes]:
            try:
                with urllib.request.urlopen(f"{url}{self.path}", timeout=10) as answer:  # noqa: S310
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
            pass

    with ThreadingHTTPServer((HOST, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()

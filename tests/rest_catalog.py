"""A real REST catalog, Apache Iceberg's own reference server over a SQLite database, and a proxy that makes trouble."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyspark

from calve.sink_core.detached import HOST
from calve.sink_core.jars import JarSet, resolve
from calve.sink_core.java import find_java
from tests import support

REST_SERVER = JarSet(
    "rest-catalog",
    roots=("org.apache.iceberg:iceberg-core:1.10.0", "org.eclipse.jetty:jetty-servlet:11.0.25"),
    extras=(
        "org.apache.iceberg:iceberg-open-api:1.10.0:test-fixtures",
        "org.apache.iceberg:iceberg-core:1.10.0:tests",
        "org.xerial:sqlite-jdbc:3.54.1.0",
    ),
)
START_S = 60.0
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True)
class Answer:
    """Made up by the proxy. Status 0 cuts the connection."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class RestCatalog:
    """The server for the tables of the SQL catalog `name` in `directory`; it keeps its port when started again."""

    directory: Path
    name: str
    port: int = field(default_factory=support.steady_port)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        jars = [*resolve(REST_SERVER), *(Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")]
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "CATALOG_CATALOG_NAME": self.name,
            "CATALOG_CATALOG_IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_JDBC_SCHEMA_VERSION": "V1",
            "CATALOG_URI": f"jdbc:sqlite:{self.directory / 'catalog.db'}",
            # SQLite has one writer, and this server does not wait for it.
            "CATALOG_CLIENTS": "1",
            "CATALOG_WAREHOUSE": f"file://{self.directory / 'warehouse'}",
            "CATALOG_REST_PORT": str(self.port),
        }
        command = [str(find_java()), "-Xmx256m", *support.SHORT_LIVED, "-cp", os.pathsep.join(map(str, jars))]
        with (self.directory / "rest.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "org.apache.iceberg.rest.RESTCatalogServer"],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "rest.log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def stop(self) -> None:
        """SIGKILL; nothing if it doesn't run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Answer nothing any more, until `stop`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


@dataclass
class Proxy:
    """Between a client and a REST catalog. `commits` are the answers to attempts to commit to a table, oldest first.

    `trouble` holds what is done to the next of them: (whether the catalog gets to see it, the status sent back; 0 for
    a connection that is cut without an answer). Without trouble requests and answers pass as they are; every answer, or
    those to commits, later by so many seconds. `reads` are the answers that the next questions get in place of the
    catalog's, `of_tables` those to any question of a table, by its name. `most_at_a_time` counts attempts to commit
    that went on together. Without `keeps_tags` tags don't get through, as Nessie has none.
    """

    upstream: int
    trouble: list[tuple[bool, int]] = field(default_factory=list[tuple[bool, int]])
    reads: list[Answer] = field(default_factory=list[Answer])
    of_tables: dict[str, Answer] = field(default_factory=dict[str, Answer])
    lasting: tuple[bool, int] | None = None
    keeps_tags: bool = True
    delay_s: float = 0.0
    commit_delay_s: float = 0.0
    commits: list[int] = field(default_factory=list[int])
    most_at_a_time: int = 0
    under_way: list[object] = field(default_factory=list[object])
    port: int = 0

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    def next_trouble(self) -> tuple[bool, int] | None:
        return self.trouble.pop(0) if self.trouble else self.lasting


@contextmanager
def proxied(upstream: int) -> Generator[Proxy]:
    """A proxy in front of the catalog at port `upstream`."""
    proxy = Proxy(upstream)

    class Handler(_Handler):
        of = proxy

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        # Creating a table is a POST to its namespace.
        is_commit = self.command == "POST" and "/tables/" in self.path
        if is_commit:
            self.of.under_way.append(self)
            self.of.most_at_a_time = max(self.of.most_at_a_time, len(self.of.under_way))
            body = body if self.of.keeps_tags else _without_tags(body)
        if self.command in {"GET", "HEAD"} and self.of.reads:
            made_up = self.of.reads.pop(0)
            self._send(made_up.status, made_up.headers, made_up.body)
            return
        if made_up := self.of.of_tables.get(self.path.rpartition("/tables/")[2]):
            self._send(made_up.status, made_up.headers, made_up.body)
            return
        trouble = self.of.next_trouble() if is_commit else None
        status, headers, answer = self._ask(body) if trouble is None or trouble[0] else (0, [], b"")
        if trouble is not None:
            status, headers, answer = trouble[1], [], b'{"error": {"message": "made up", "type": "T", "code": 500}}'
        time.sleep(self.of.delay_s + (self.of.commit_delay_s if is_commit else 0.0))
        if is_commit:
            self.of.under_way.remove(self)
            self.of.commits.append(status)
        self._send(status, headers, answer)

    def _send(self, status: int, headers: Iterable[tuple[str, str]], answer: bytes) -> None:
        if not status:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_DELETE = do_POST  # noqa: N815 - the names http.server looks for

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(HOST, self.of.upstream)
        try:
            passed = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            connection.request(self.command, self.path, body or None, passed)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except OSError:
            return 0, [], b""
        finally:
            connection.close()

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def _without_tags(commit: bytes) -> bytes:
    asked = json.loads(commit)
    asked["updates"] = [each for each in asked["updates"] if each.get("type") != "tag"]
    return json.dumps(asked).encode()

"""Hudi in a JVM of its own, started when it is first needed. It ends with its process, or before.

Spark's jars come first on its class path: with those of the bundle first an old library of it breaks Spark's Parquet.
It is never the JVM of Calve's Spark: the bundle is made for another Scala.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, cast

from py4j.java_gateway import (
    CallbackServerParameters,
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from calve.sink_core.class_archives import archive_path
from calve.sink_core.codes import Code
from calve.sink_core.errors import RetriableError, Unreachable
from calve.sink_core.hudi.java.fetched import client_jars
from calve.sink_core.java import find_java
from calve.sink_core.timing import Deadline, back_off

_OPENED = (
    *("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util"),
    *("util.concurrent", "util.concurrent.atomic"),
)
_OPTIONS = (
    "-XX:+UseSerialGC",
    "-Djol.skipHotspotSAAttach=true",
    "-Dorg.apache.logging.log4j.level=ERROR",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
)
_SHORT = ("-XX:TieredStopAtLevel=1",)
"""A commit is over before the optimising compiler would have begun."""

_LAST_LINES = 5
_END_S = 60
_KILLED_S = 3600

LOCK_S = 600.0
"""How long a commit waits for another one of the same table."""


class HudiRefused(Exception):
    """Hudi raised; the text is its."""


class Jvm:
    """The JVM. `java` is the way to its classes; calls of them belong into `calling`. `name` is that of its archive of
    classes, `jars` its class path in order (raises Unreachable), `options` further ones of Java.
    """

    def __init__(
        self, name: str, jars: Callable[[], Sequence[Path]], options: Callable[[], Sequence[str]] = tuple
    ) -> None:
        self._name, self._jars, self._options = name, jars, options
        self._last = deque[str](maxlen=_LAST_LINES)
        self._process: Popen[Any] | None = None
        self._archive: _Archive | None = None

    @cached_property
    def _gateway(self) -> JavaGateway:
        java, jars = find_java(), self._jars()
        self._archive = _Archive(archive_path(self._name, java, jars))
        started = launch_gateway(
            classpath=":".join(map(str, jars)),
            javaopts=[*_OPTIONS, *self._options(), *self._archive.options],
            java_path=str(java),
            # It ends when its standard input does, and so with this process however that ends.
            die_on_exit=True,
            redirect_stdout=self._last,
            redirect_stderr=self._last,
            enable_auth=True,
            return_proc=True,
        )
        port, token, self._process = cast("tuple[int, str, Popen[Any]]", started)
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True),
            # Java's side has no token for it; all that there is to be called is a check.
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        server, callbacks = cast(Any, gateway.java_gateway_server), cast(Any, gateway.get_callback_server())
        server.resetCallbackClient(server.getCallbackClient().getAddress(), callbacks.get_listening_port())
        # Hudi compares the schema of its metadata table by identity, with the first equal one that this JVM has met. If
        # that was read from a file, as where the metadata table is compacted first of all, no commit goes through.
        cast(Any, gateway.jvm).java.lang.Class.forName("org.apache.hudi.metadata.HoodieMetadataPayload")
        return gateway

    @property
    def java(self) -> Any:
        """As py4j's `jvm`. Starts the JVM; raises ConfigError without Java, Unreachable without the jars."""
        return self._gateway.jvm

    @contextmanager
    def calling(self, doing: str) -> Generator[Any]:
        """`java`, for what follows. Raises HudiRefused for what Java raises, RetriableError if the JVM has ended."""
        try:
            yield self.java
        except Py4JJavaError as error:
            raise HudiRefused(_told(error)) from None
        except (Py4JNetworkError, OSError) as error:
            said = " | ".join(line.strip() for line in self._last)
            self.close()
            raise RetriableError(
                f"{doing}: Hudi's Java client has ended: {said or error}",
                hint="run again; what was published is committed by the next run",
                code=Code.HUDI_JVM,
            ) from None

    def array(self, kind: Any, length: int) -> Any:
        """A Java array of a class."""
        return self._gateway.new_array(kind, length)

    def map(self, values: Mapping[str, str]) -> Any:
        """A Java map of text."""
        made = self.java.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def properties(self, values: Mapping[str, str]) -> Any:
        """Java's properties."""
        made = self.java.java.util.Properties()
        for key, value in values.items():
            made.setProperty(key, value)
        return made

    @contextmanager
    def locked(self, path: Path) -> Generator[None]:
        """Hold the lock file, made if missing, waiting for whoever has it. Raises Unreachable after `LOCK_S`.

        The JVM holds it, as it is what completes commits: the kernel drops it when that has ended, and not before.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.calling(f"locking {path}") as java:
            channel = java.java.io.RandomAccessFile(str(path), "rw").getChannel()
        try:
            deadline, tries = Deadline.after(LOCK_S), 0
            while not self._locks(channel, path):
                if deadline.passed:
                    raise Unreachable(
                        f"{path}: somebody has held the lock for {LOCK_S:,.0f} s",
                        hint=f"a commit that is asleep holds it: `fuser {path}` names its process; wake it, or end it",
                        code=Code.HUDI_LOCKED,
                    )
                back_off(tries, most_s=0.5)
                tries += 1
            yield
        finally:
            # One that has ended has dropped it.
            with suppress(Py4JError, OSError):
                channel.close()

    def _locks(self, channel: Any, path: Path) -> bool:
        with self.calling(f"locking {path}"):
            return channel.tryLock() is not None

    def close(self) -> None:
        """End the JVM; the next use starts another."""
        gateway = self.__dict__.pop("_gateway", None)
        if gateway is None or self._process is None or self._archive is None:
            return
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._archive.keep()


def client_jvm() -> Jvm:
    """One for Hudi's Java client, on jars of the Spark that Calve runs on."""
    return Jvm("hudi", _client_jars, lambda: _SHORT)


def _client_jars() -> list[Path]:
    # Names and not a pattern, as an archive of classes wants them.
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return [*sorted((Path(spec.origin).parent / "jars").glob("*.jar")), *client_jars()]


class Check:
    """A Java `BiConsumer` that calls `check` before a commit is completed; what that raises is kept, and Java is told
    to stop. `extra` is what the commit then says of itself besides.
    """

    class Java:
        implements = ("java.util.function.BiConsumer",)

    def __init__(self, check: Callable[[], None], extra: Mapping[str, str] | None = None) -> None:
        self._check, self._extra = check, extra or {}
        self.raised: Exception | None = None

    def accept(self, _client: object, metadata: Any) -> None:
        try:
            self._check()
            for key, value in self._extra.items():
                metadata.addMetadata(key, value)
        except Exception as error:
            self.raised = error
            raise


class _Archive:
    """Of the JVM's classes: the first one that ends in peace writes it, the later ones start with it. Saves three
    CPU-seconds of each.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._new = path, path.with_suffix(f".{uuid.uuid4()}")

    @property
    def options(self) -> Sequence[str]:
        """What makes Java use the archive, or write it; nothing where it can't be written."""
        if self._path.is_file():
            return (f"-XX:SharedArchiveFile={self._path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ()
        writable = os.access(self._path.parent, os.W_OK)
        return (f"-XX:ArchiveClassesAtExit={self._new}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off") if writable else ()

    def keep(self) -> None:
        """Put in place what a JVM has written, which has ended by now, and forget what one left that was killed."""
        with suppress(OSError):
            self._new.rename(self._path)
        for left in self._path.parent.glob(f"{self._path.stem}.*-*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _KILLED_S:
                    left.unlink()


def _told(error: Py4JJavaError) -> str:
    """The exception with its causes, a line each."""
    told: list[str] = []
    cause = error.java_exception
    while cause is not None and len(told) < _LAST_LINES:
        line = str(cause.toString()).splitlines()[0]
        if line not in told:
            told.append(line)
        cause = cause.getCause()
    return "; ".join(told)

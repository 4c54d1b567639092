"""Starting a Spark session so that nothing of it reaches the user's terminal but errors."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import get_ident
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.error_text import first_line
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.jars import spark_jars
from calve.sink_core.java import find_java, write_properties
from calve.sink_core.tasks import SPARK, Job, WrittenBy
from calve.spark_jobs import class_archive, warm
from calve.spark_jobs.attached import Attached, own_tag
from calve.spark_jobs.compat import (
    Metrics,
    attached,
    detach,
    end_accumulators,
    gateway,
    metrics_of,
    new_session,
    running_context,
    session_of,
)

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The driver hands out tasks for some seconds: the optimising compiler and parallel collectors cost six CPU-seconds a
run here and gain nothing."""

_SUBMIT = "PYSPARK_SUBMIT_ARGS"
"""What pyspark gives `spark-submit`."""

_MIB = 1024 * 1024
_LOG_TAIL_LINES = 15
_SOCKETS_LENGTH = 60
"""Characters of a folder with sockets: the path of one has 107 at most, of which its name takes 42."""


@dataclass(frozen=True)
class Started:
    """A Spark that runs, and how to end it: `context` is that of a classic one, `connected` the session of another.

    `place` is there on a warm one.
    """

    stop: Callable[[], None]
    context: SparkContext | None = None
    connected: SparkSession | None = None
    place: Attached | None = None
    _numbers: dict[int, RDD[int]] = field(default_factory=dict[int, "RDD[int]"])
    _tagged: set[int] = field(default_factory=set[int])

    @classmethod
    def given(cls, session: SparkSession) -> Started:
        """That of a session which somebody else ends. It need not be what settings say."""
        from pyspark.sql import SparkSession

        # Of Connect's class, which is no subclass, types know nothing.
        given: Any = session
        classic = isinstance(given, SparkSession)
        return cls(_nothing, session.sparkContext) if classic else cls(_nothing, connected=given)

    @property
    def session(self) -> SparkSession:
        """The session, of a classic Spark made with the first use: that loads Spark's SQL, which takes a second."""
        from pyspark.sql import SparkSession

        if self.context is None:
            assert self.connected is not None
            return self.connected
        if (session := session_of(self.context)) is not None:
            return session
        return new_session(self.context) if self.place else SparkSession(self.context)

    @property
    def is_local(self) -> bool:
        """Whether its tasks run on this machine."""
        return self.context is not None and (self.context.master or "").startswith("local")

    def written_by(self, tasks: int) -> WrittenBy:
        """The engine, for a batch of so many tasks."""
        return replace(self._engine, tasks=tasks)

    @cached_property
    def _engine(self) -> WrittenBy:
        if (context := self.context) is None:
            return WrittenBy(SPARK, 0)
        return WrittenBy(SPARK, 0, context.applicationId, context.master or "", context.uiWebUrl or "")

    def numbers(self, n: int) -> RDD[int]:
        """The numbers 0 to n - 1, each in a partition, of a classic Spark. They are sent to the JVM once."""
        assert self.context is not None
        if n not in self._numbers:
            self._numbers[n] = self.context.parallelize(range(n), n)
        return self._numbers[n]

    def name_jobs(self, job: Job) -> None:
        """Name what this thread runs on a classic Spark from now on, and tag it as this process's."""
        assert self.context is not None
        if get_ident() not in self._tagged:
            self.context.addJobTag(own_tag())
            self._tagged.add(get_ident())
        self.context.setJobGroup(job.group, job.description)

    def cancel_jobs(self) -> None:
        """Cancel what this process runs on a classic Spark, by its tag: a warm one has jobs of other runs."""
        assert self.context is not None
        self.context.cancelJobsWithTag(own_tag())

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics of a classic Spark's driver."""
        assert self.context is not None
        return metrics_of(self.context)


def start(settings: SparkSettings, *, scratch: Path | None = None) -> Started:
    """Spark as `settings` describe it: the process's own classic one if there is one already, else the warm one of
    these settings if there is one. `scratch` is a folder for the files of a new one.

    Raises ConfigError if there is no Java or Spark refuses the settings, Unreachable if the master, the Connect server
    or the warm Spark doesn't answer.
    """
    if settings.remote is not None:
        _with_this_python()
        return _connect(_resolved(settings.remote), _own(settings))
    if (there := running_or_warm(settings)) is not None:
        return there
    return _launch(_resolved(settings.master or ""), settings.driver_memory, _own(settings), scratch)


def running_or_warm(settings: SparkSettings) -> Started | None:
    """The classic Spark that this process has, or else the warm one of these settings; None if there is neither. Raises
    Unreachable if a warm one that died does not come up again, ConfigError for settings that can't be resolved.
    """
    _with_this_python()
    resolve(settings.conf)
    if (running := running_context()) is not None:
        return Started(_nothing, running, place=_places.get(running))
    spark = warm.find(settings)
    return _attach(spark) if spark is not None else None


_places: WeakKeyDictionary[SparkContext, Attached] = WeakKeyDictionary()
"""By the context of this process, where that is one of a warm Spark."""


def _attach(spark: warm.WarmSpark) -> Started | None:
    """A warm Spark, for this process; None if it doesn't answer, or has no context any more."""
    from py4j.protocol import Py4JError

    place = Attached.to(spark)
    try:
        context = attached(spark.process.port, spark.secret)
    except (Py4JError, OSError):
        context = None
    if context is None:
        place.leave()
        return None

    _places[context] = place

    def stop() -> None:
        detach(context)
        place.leave()

    return Started(stop, context, place=place)


@contextmanager
def configuration(settings: SparkSettings) -> Generator[dict[str, str]]:
    """What to give a session's builder, for those who start it themselves, in this `with`.

    A session that was started meanwhile is stopped at its end, and its scratch folder removed.
    """
    _with_this_python()
    if settings.remote is not None:
        yield {"spark.remote": _resolved(settings.remote), **_own(settings)}
        return
    before = running_context()
    with tempfile.TemporaryDirectory(prefix="calve-spark-", ignore_cleanup_errors=True) as scratch:
        yield {**defaults(_resolved(settings.master or ""), settings.driver_memory, scratch), **_own(settings)}
        context = running_context()
        if context is not None and context is not before:
            _end(context)


def _with_this_python() -> None:
    """Spark starts its Python workers with this interpreter, which has what tasks import."""
    os.environ["PYSPARK_PYTHON"] = sys.executable


def _resolved(address: str) -> str:
    return str(resolve({"address": address})["address"])


def _own(settings: SparkSettings) -> dict[str, str]:
    return {key: _as_text(value) for key, value in resolve(settings.conf).items()}


def _connect(remote: str, own: Mapping[str, str]) -> Started:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for key, value in own.items():
        builder = builder.config(key, value)
    try:
        session = builder.create() if remote.startswith("sc://") else builder.getOrCreate()
        session.range(1).collect()
    except PySparkException as error:
        raise Unreachable(
            f"Spark Connect at {_without_parameters(remote)}: {first_line(error)}",
            hint="check `remote` under `spark` in connections.yaml, and that the server runs",
            code=Code.SPARK_CONNECT,
        ) from None
    return Started(session.stop, connected=session)


def _launch(master: str, driver_memory: int | None, own: Mapping[str, str], folder: Path | None) -> Started:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    # The launcher, a JVM of its own, only puts the command together.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", JAVA_OPTIONS)
    scratch = tempfile.TemporaryDirectory(prefix="calve-spark-", ignore_cleanup_errors=True)
    log = Path(scratch.name) / "driver.log"
    ours = defaults(master, driver_memory, str(folder or scratch.name), scratch.name)
    settings = {**ours, **own}
    try:
        with log.open("ab") as output:
            # The JVM writes to the terminal it inherits before any of its log settings apply. A JVM of an earlier
            # session in this process serves this one as well.
            running = gateway() or _gateway(settings, Path(scratch.name), output)
        context = SparkContext(conf=SparkConf().setAll([*settings.items()]), gateway=running)
    except (Py4JError, PySparkException, OSError) as error:
        # Java takes its time to say its version, for which a start that goes well need not wait.
        find_java()
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
        scratch.cleanup()
        raise ConfigError(
            f"Spark with master {master} doesn't start: {first_line(error)}\n{tail}",
            hint="correct `master` and `conf` under `spark` in connections.yaml",
            code=Code.SPARK_START,
        ) from None

    def stop() -> None:
        _end(context)
        scratch.cleanup()

    return Started(stop, context)


def _gateway(settings: Mapping[str, str], folder: Path, output: IO[bytes]) -> Any:
    """The way to a new JVM. Its settings are in a file for as long as it starts: command lines are for everybody."""
    from pyspark.java_gateway import launch_gateway

    file, before = write_properties(folder / "spark.conf", settings), os.environ.get(_SUBMIT)
    read = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"
    os.environ[_SUBMIT] = f"{read} {before or 'pyspark-shell'}"
    try:
        return launch_gateway(None, {"stdout": output, "stderr": output})
    finally:
        file.unlink()
        if before is None:
            del os.environ[_SUBMIT]
        else:
            os.environ[_SUBMIT] = before


def _nothing() -> None:
    """Somebody else stops it."""


def _end(context: SparkContext) -> None:
    session = session_of(context)
    end_accumulators(context)
    (session or context).stop()


def defaults(master: str, driver_memory: int | None, scratch: str, sockets: str = "") -> dict[str, str]:
    """Spark's settings for a driver whose scratch files are in the folder `scratch`, and the sockets of its Python
    processes in `sockets`, by default there too: nobody else may enter it. `driver_memory` in bytes.
    """
    sockets = sockets or scratch
    conf = {
        "spark.master": master,
        "spark.app.name": "calve",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {class_archive.java_option()}".strip(),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if driver_memory is not None:
        conf["spark.driver.memory"] = f"{max(1, driver_memory // _MIB)}m"
    if master.startswith("local"):
        loopback = "127.0.0.1"
        conf |= {"spark.driver.host": loopback, "spark.driver.bindAddress": loopback, "spark.local.dir": scratch}
        conf["spark.python.daemon.module"] = "calve.spark_jobs.daemon"
        if len(sockets) <= _SOCKETS_LENGTH:
            # Between two processes of a machine TCP waits 40 ms in each task until what was sent is acknowledged.
            conf |= {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": sockets}
        # `spark.jars` would copy them for executors, which are the driver itself here.
        conf["spark.driver.extraClassPath"] = os.pathsep.join(map(str, spark_jars()))
    else:
        conf["spark.jars"] = ",".join(map(str, spark_jars()))
    return conf


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_parameters(remote: str) -> str:
    """A Connect address may carry a token among its parameters."""
    return remote.partition(";")[0]

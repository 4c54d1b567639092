"""Names that pyspark keeps to itself and Calve uses, each under a public one.

A release of pyspark may drop or change them without a word; `tests/unit/spark_jobs/test_compat.py` then says which.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


METRICS = "AccumulatorSource"
"""The source of metrics that an application may fill, as Spark names it."""


class Counter(Protocol):
    """A number that grows."""

    def inc(self, number: int) -> None: ...


class Histogram(Protocol):
    """The distribution of a number: its count, mean, maximum and quantiles."""

    def update(self, number: int) -> None: ...


class Metrics(Protocol):
    """Dropwizard's registry, in the JVM; a metric is there with its first use."""

    def counter(self, name: str) -> Counter: ...
    def histogram(self, name: str) -> Histogram: ...


def gateway() -> JavaGateway | None:
    """The way to this process's JVM, None if it has none yet: a second session can't have another."""
    from pyspark import SparkContext

    return SparkContext._gateway  # pyright: ignore[reportPrivateUsage]


def running_context() -> SparkContext | None:
    """This process's context, None if there is none: a process can't have a second one."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]


def session_of(context: SparkContext) -> SparkSession | None:
    """The session that was made of a context, None if none was. The JVM is not asked, which would load Spark's SQL."""
    from pyspark.sql import SparkSession

    made = SparkSession._instantiatedSession  # pyright: ignore[reportPrivateUsage]
    return made if made is not None and made.sparkContext is context else None


def attached(port: int, secret: str) -> SparkContext | None:
    """The context of another process's JVM, None if it has none. Its end is not ours: `detach` leaves it.

    Raises what Py4J raises if nobody answers.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    way = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(way)
    try:
        gateway: Any = launch_gateway()
    finally:
        for name in way:
            del os.environ[name]
    # Where there is none, `getOrCreate` would make one; with a context the environment goes.
    if gateway.jvm.org.apache.spark.SparkEnv.get() is None:
        gateway.close()
        return None
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)
    # In the main thread pyspark has Ctrl-C cancel all jobs, also those of other runs.
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, interrupt)
    # When the JVM ends, whoever reads accumulators prints a traceback.
    server: Any = context._accumulatorServer  # pyright: ignore[reportPrivateUsage]
    server.handle_error = lambda *_: None
    return context


def new_session(context: SparkContext) -> SparkSession:
    """A session of an attached context that shares no setting, catalog or view with those of other runs."""
    from pyspark.sql import SparkSession

    jvm: Any = context._jvm  # pyright: ignore[reportPrivateUsage]
    java: Any = context._jsc  # pyright: ignore[reportPrivateUsage]
    made: Any = jvm.org.apache.spark.sql.classic.SparkSession.builder().sparkContext(java.sc()).getOrCreate()
    return SparkSession(context, made.newSession())


def detach(context: SparkContext) -> None:
    """Leave an attached context as it is, and this process as if it had none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not context:  # pyright: ignore[reportPrivateUsage]
        return
    end_accumulators(context)
    folder = context._temp_dir  # pyright: ignore[reportPrivateUsage]
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    way: Any = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    SparkContext._active_spark_context = None  # pyright: ignore[reportPrivateUsage]
    SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]
    SparkSession._instantiatedSession = None  # pyright: ignore[reportPrivateUsage]
    with suppress(Exception):
        way.close()


def end_accumulators(context: SparkContext) -> None:
    """Have a context's server of accumulators end by itself: `stop` waits for its thread, which looks up once a second
    from what the JVM sends.
    """
    server: Any = context._accumulatorServer  # pyright: ignore[reportPrivateUsage]
    if server is not None:
        context._accumulatorServer = None  # pyright: ignore[reportPrivateUsage]
        Thread(target=server.shutdown, daemon=True, name="calve-accumulators").start()


def metrics_of(context: SparkContext) -> Metrics:
    """The registry of Calve's metrics in the JVM: what is in it is among the metrics of the application's driver.

    All runs on a warm Spark share it, so that its numbers go on from run to run.
    """
    jvm: Any = context._jvm  # pyright: ignore[reportPrivateUsage]
    system = jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    sources = system.getSourcesByName(METRICS)
    if not sources.isEmpty():
        return sources.head().metricRegistry()
    # The one source that Spark offers to others: it is made for accumulators, and takes any metric.
    source = jvm.org.apache.spark.metrics.source.LongAccumulatorSource()
    system.registerSource(source)
    return source.metricRegistry()


def heap_in_use(context: SparkContext) -> float:
    """The share of the driver's heap, from 0 to 1, that its last whole collection left in use; 0 before the first."""
    jvm: Any = context._jvm  # pyright: ignore[reportPrivateUsage]
    pools = jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    # Of heap and of what is no heap, those that survivors of collections go to have a threshold.
    old = [pool for pool in pools if pool.getType().name() == "HEAP" and pool.isUsageThresholdSupported()]
    usages = [pool.getCollectionUsage() for pool in old]
    return max((usage.getUsed() / usage.getMax() for usage in usages if usage is not None), default=0.0)


def worker_died(error: Exception) -> bool:
    """Whether Spark says that the process of a Python task ended in the middle of it: it has no class for that."""
    return "Python worker exited unexpectedly" in str(error)

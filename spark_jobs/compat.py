"""Names that pyspark keeps to itself and Calve uses, each under a public one.

A release of pyspark may drop or change them without a word; `tests/unit/spark_jobs/test_compat.py` then says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class Select(Protocol):
    """What the daemon's loop asks of the module `select`."""

    error: type[OSError]

    def select(self, *asked: Any) -> tuple[Sequence[Any], ...]: ...


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


def end_accumulators(context: SparkContext) -> None:
    """Have a context's server of accumulators end by itself: `stop` waits for its thread, which looks up once a second
    from what the JVM sends.
    """
    server: Any = context._accumulatorServer  # pyright: ignore[reportPrivateUsage]
    if server is not None:
        context._accumulatorServer = None  # pyright: ignore[reportPrivateUsage]
        Thread(target=server.shutdown, daemon=True, name="calve-accumulators").start()


def put_in_place_of_select(look: Select) -> None:
    """Have the loop of pyspark's Python daemon, which has no end of its own, ask `look`."""
    from pyspark import daemon

    daemon.select = look  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]

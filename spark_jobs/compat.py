"""Names that pyspark keeps to itself and Calve uses, each under a public one.

A release of pyspark may drop or change them without a word; `tests/unit/spark_jobs/test_compat.py` then says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway


class Select(Protocol):
    """What the daemon's loop asks of the module `select`."""

    error: type[OSError]

    def select(self, *asked: Any) -> tuple[Sequence[Any], ...]: ...


def gateway() -> JavaGateway | None:
    """The way to this process's JVM, None if it has none yet: a second session can't have another."""
    from pyspark import SparkContext

    return SparkContext._gateway  # pyright: ignore[reportPrivateUsage]


def put_in_place_of_select(look: Select) -> None:
    """Have the loop of pyspark's Python daemon, which has no end of its own, ask `look`."""
    from pyspark import daemon

    daemon.select = look  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]

"""Iceberg's Spark procedures (https://iceberg.apache.org/docs/latest/spark-procedures/) for one catalog."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.error_text import first_line
from calve.sink_core.errors import CommitConflict, RetriableError
from calve.sink_core.iceberg.maintenance.predicate import quoted, text
from calve.sink_core.sink.maintenance.work import Rewritten
from calve.spark_jobs.catalog import attach

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_LISTING_VIEW = "calve_files"


class SparkProcedures:
    """Calls procedures of `catalog`. Spark is started by the first call.

    All raise CommitConflict after Iceberg's own retries, RetriableError with Spark's words for anything else: nothing
    that a procedure leaves behind is harmful, and the next run tries again.
    """

    def __init__(self, session: Callable[[], SparkSession], catalog: CatalogSettings) -> None:
        self._start, self._catalog = session, catalog
        self._attached: SparkSession | None = None

    def rewrite_data_files(self, table: str, *, strategy: str, where: str, options: Mapping[str, str]) -> Rewritten:
        given = ", ".join(text(part) for option in options.items() for part in option)
        arguments = [self._named(table), f"strategy => {text(strategy)}", f"options => map({given})"]
        row = self._call("rewrite_data_files", table, [*arguments, *([f"where => {text(where)}"] if where else [])])[0]
        return Rewritten(
            files=int(row["rewritten_data_files_count"]),
            into=int(row["added_data_files_count"]),
            bytes=int(row["rewritten_bytes_count"]),
            failed=int(row["failed_data_files_count"]),
        )

    def rewrite_manifests(self, table: str) -> None:
        self._call("rewrite_manifests", table, [self._named(table)])

    def expire_snapshots(self, table: str, *, older_than_ms: int, retain_last: int) -> dict[str, int]:
        moment = datetime.fromtimestamp(older_than_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        arguments = [
            self._named(table),
            f"older_than => timestamp'{moment}+00:00'",
            f"retain_last => {retain_last}",
        ]
        return {key: int(value) for key, value in self._call("expire_snapshots", table, arguments)[0].asDict().items()}

    def remove_orphan_files(self, table: str, files: Iterable[str], *, dry_run: bool) -> list[str]:
        self._session.createDataFrame(
            # How old a file must be was decided when it was listed; the procedure has a least age of its own.
            [(path, _LONG_AGO) for path in files],
            "file_path string, last_modified timestamp",
        ).createOrReplaceTempView(_LISTING_VIEW)
        arguments = [
            self._named(table),
            f"file_list_view => '{_LISTING_VIEW}'",
            f"dry_run => {str(dry_run).lower()}",
            # `file:/a` and `file:///a`, `s3` and `s3a` name the same file.
            "equal_schemes => map('s3a,s3n', 's3')",
        ]
        try:
            return [str(row[0]) for row in self._call("remove_orphan_files", table, arguments)]
        finally:
            self._session.catalog.dropTempView(_LISTING_VIEW)

    def _call(self, procedure: str, table: str, arguments: list[str]) -> list[Row]:
        statement = f"CALL {quoted(self._catalog.name)}.system.{procedure}({', '.join(arguments)})"
        with as_ours(f"{procedure} of {table}"):
            return self._session.sql(statement).collect()

    def _named(self, table: str) -> str:
        """With its catalog: a namespace of the same name would be taken for that."""
        return f"table => {text(f'{quoted(self._catalog.name)}.{quoted(table)}')}"

    @property
    def _session(self) -> SparkSession:
        if self._attached is None:
            self._attached = self._start()
            attach(self._attached, self._catalog)
        return self._attached


@contextmanager
def as_ours(doing: str) -> Generator[None]:
    """Raise CommitConflict and RetriableError in place of what Spark says of Iceberg."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = first_line(error)
        if "CommitFailedException" in str(error):
            raise CommitConflict(
                f"{doing}: lost the race against other commits: {said}",
                hint="nothing was changed; the next run tries again",
                code=Code.PROCEDURE_RACE,
            ) from None
        raise RetriableError(
            f"{doing}: {said}", hint="nothing was lost by it; see Spark's log for more", code=Code.PROCEDURE
        ) from None

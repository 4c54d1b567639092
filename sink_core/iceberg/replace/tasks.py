"""What tasks do with data files of a table's head: read rows of given source offsets, or write all others again.

Tasks open the table's storage themselves: the catalog's settings that they are given are unresolved, as each reads its
own environment. No delete may apply to the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from calve.sink_core.iceberg.catalog.opening import open_io, unreachable_as_ours
from calve.sink_core.iceberg.files.kafka_rows import Runs
from calve.sink_core.iceberg.format.target import iceberg_target
from calve.sink_core.iceberg.replace.head_files import HeadFile
from calve.sink_core.iceberg.write.rewrite import Rewritten, rewrite_without, rows_of_file
from calve.sink_core.tables.format.target import Target


def rows_of_runs(target: Target, files: Iterable[HeadFile], runs: Runs) -> Iterator[pa.RecordBatch]:
    """The rows of the ranges in the files, by the columns topic, partition and offset. Raises Unreachable, ConfigError
    and TableUnusable.
    """
    table = iceberg_target(target)
    with unreachable_as_ours(f"reading {table.name}"):
        io = open_io(table.catalog, table.name, table.metadata.location)
        for each in files:
            for rows, flags in rows_of_file(io, table.metadata, each.file, runs, struct=None):
                if flags.any():
                    yield rows.filter(pa.array(flags))


def written_without(target: Target, files: Iterable[HeadFile], runs: Runs, file_prefix: str) -> list[Rewritten]:
    """Those of the files that hold rows of the ranges, by the column `_kafka`, written again without these. Raises as
    `rows_of_runs`.
    """
    table = iceberg_target(target)
    with unreachable_as_ours(f"rewriting files of {table.name}"):
        io = open_io(table.catalog, table.name, table.metadata.location)
        found = (
            rewrite_without(io, table.metadata, each.file, runs, file_prefix, target_file_size=table.target_file_size)
            for each in files
        )
        return [each for each in found if each is not None]

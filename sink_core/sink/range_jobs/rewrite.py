"""Data files of a table written again without the rows of given ranges, by tasks. No rows pass through the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata

from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.iceberg.catalog.opening import open_io, unreachable_as_ours
from calve.sink_core.iceberg.files.kafka_rows import Runs
from calve.sink_core.iceberg.format.target import iceberg_target
from calve.sink_core.iceberg.write.rewrite import Rewritten, rewrite_without
from calve.sink_core.sink.loop.engine import Engine
from calve.sink_core.sink.write.spec import TableSpec


@dataclass(frozen=True, slots=True)
class RewriteSpec:
    """What all tasks have in common. The catalog's settings are unresolved: each task reads its own environment."""

    batch_id: str
    catalog: CatalogSettings
    table: TableSpec
    runs: Runs


def rewrite_files(spec: RewriteSpec, files: Sequence[DataFile], engine: Engine) -> list[Rewritten]:
    """Those of `files` that hold rows of the ranges, written again without them."""
    records = sum(file.record_count for file in files)
    groups = _even(files, min(len(files), engine.parallelism(records)))
    return [each for done in engine.run(partial(_run, spec, groups), len(groups), records=records) for each in done]


def _even(files: Sequence[DataFile], groups: int) -> list[list[DataFile]]:
    """The files in groups of about equal bytes."""
    made: list[list[DataFile]] = [[] for _ in range(groups)]
    sizes = [0] * groups
    for file in sorted(files, key=lambda file: -file.file_size_in_bytes):
        smallest = sizes.index(min(sizes))
        made[smallest].append(file)
        sizes[smallest] += file.file_size_in_bytes
    return made


def _run(spec: RewriteSpec, groups: Sequence[Sequence[DataFile]], number: int) -> list[Rewritten]:
    metadata: TableMetadata = iceberg_target(spec.table.target).metadata
    done: list[Rewritten] = []
    with unreachable_as_ours(f"rewriting files of {spec.table.name}"):
        io = open_io(spec.catalog, spec.table.name, metadata.location)
        for file in groups[number]:
            prefix, target = f"calve-{spec.batch_id}-kept-{number}", iceberg_target(spec.table.target).target_file_size
            rewritten = rewrite_without(io, metadata, file, spec.runs, prefix, target_file_size=target)
            if rewritten is not None:
                done.append(rewritten)
    return done

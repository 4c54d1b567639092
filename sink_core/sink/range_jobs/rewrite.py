"""Data files of a table written again without the rows of given ranges, by tasks. No rows pass through the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from calve.sink_core.iceberg.files.kafka_rows import Runs
from calve.sink_core.iceberg.replace.head_files import HeadFile
from calve.sink_core.iceberg.replace.tasks import written_without
from calve.sink_core.iceberg.write.rewrite import Rewritten
from calve.sink_core.sink.loop.engine import Engine
from calve.sink_core.tables.format.target import Target
from calve.sink_core.tasks import Job


@dataclass(frozen=True, slots=True)
class RewriteSpec:
    """What all tasks have in common. The catalog's settings are unresolved: each task reads its own environment."""

    job_group: str
    batch_id: str
    target: Target
    runs: Runs


def rewrite_files(spec: RewriteSpec, files: Sequence[HeadFile], engine: Engine) -> list[Rewritten]:
    """Those of `files` that hold rows of the ranges, written again without them."""
    records = sum(file.rows for file in files)
    groups = _even(files, min(len(files), engine.parallelism(records)))
    job = Job(spec.job_group, spec.batch_id, f"{spec.job_group}: {len(files)} files written again for {spec.batch_id}")
    done = engine.run(partial(_run, spec, groups), len(groups), records=records, job=job)
    return [each for some in done for each in some]


def _even(files: Sequence[HeadFile], groups: int) -> list[list[HeadFile]]:
    """The files in groups of about equal bytes."""
    made: list[list[HeadFile]] = [[] for _ in range(groups)]
    sizes = [0] * groups
    for file in sorted(files, key=lambda file: -file.size):
        smallest = sizes.index(min(sizes))
        made[smallest].append(file)
        sizes[smallest] += file.size
    return made


def _run(spec: RewriteSpec, groups: Sequence[Sequence[HeadFile]], number: int) -> list[Rewritten]:
    prefix = f"calve-{spec.batch_id}-kept-{number}"
    return written_without(spec.target, groups[number], spec.runs, prefix)

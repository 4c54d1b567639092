"""Hudi tables as their readers see them: by hudi-rs, which shares no code with Hudi's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from calve.sink_core.hudi.place import Place, place_of
from calve.sink_core.hudi.timeline import read_timeline
from tests.pipelines import Flow


def place(flow: Flow, table: str) -> Place:
    return place_of(warehouse(flow), table)


def warehouse(flow: Flow) -> Path:
    return flow.files / "hudi"


def read(folder: Path, options: HudiReadOptions | None = None) -> pa.Table:
    """A snapshot of the table, or what the options say."""
    table = HudiTableBuilder.from_base_uri(str(folder)).build()
    return pa.Table.from_batches(table.read(options))


def rows(folder: Path) -> list[dict[str, Any]]:
    return read(folder).to_pylist()


def ids(folder: Path) -> list[int]:
    return sorted(row["id"] for row in rows(folder))


def completions(folder: Path) -> Counter[str]:
    """How often each instant of the table was completed."""
    return Counter(instant.requested for instant in read_timeline(Place(folder, folder)).commits)

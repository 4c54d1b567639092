"""A task's memory is bounded whatever it reads and writes: the largest of what `bench.memory` measures."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bench.memory import BOUND_MIB, CASES, Case, partitions, peak_mib, tables
from calve.orchestration.local.broker import Broker

ENOUGH = 300_000
"""Records of a kilobyte: more than a task gathers, so that it has written some of it and gathers on, and as many as
kernels are loaded for."""


@pytest.mark.parametrize(
    ("case", "size"),
    [
        pytest.param(partial(partitions, records=ENOUGH), 1_000, id="partitions of a table"),
        pytest.param(partial(tables, records=ENOUGH), 300, id="tables", marks=pytest.mark.faults),
        pytest.param(CASES["kafka_partitions"], 300, id="partitions of a topic", marks=pytest.mark.faults),
        pytest.param(CASES["megabytes"], 60, id="records of a megabyte"),
    ],
)
def test_a_task_stays_below_its_bound(broker: Broker, tmp_path: Path, case: Case, size: int) -> None:
    assert peak_mib(case(broker.bootstrap, tmp_path, size)) <= BOUND_MIB

"""After each commit a table is the dictionary, as two readers of equality deletes have it, that share nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.row_histories.machine import Histories, Lake, for_clickhouse, for_spark

STEPS, SPARK_STEPS = 12, 30


def run(machine: type[Histories], tables: int, steps: int, *, always_the_same: bool = False) -> None:
    """Histories of so many tables. Fails with the shortest history found whose table is not the dictionary."""
    given = settings(max_examples=tables, stateful_step_count=steps, derandomize=always_the_same, database=None)
    run_state_machine_as_test(machine, settings=given)
    counted = machine.lake.counted
    print({name: counted[name] for name in sorted(counted)})
    assert counted["looks"] >= counted["commits"] > 0
    assert counted["late coordinators"]
    assert counted["commits of several batches"]


def test_a_table_is_the_dictionary_as_clickhouse_reads_it(by_clickhouse: Lake) -> None:
    run(for_clickhouse(by_clickhouse), 50, STEPS)


def test_a_table_is_the_dictionary_whatever_its_partitions_as_spark_reads_it(by_spark: Lake) -> None:
    # So few that chance might leave out much.
    run(for_spark(by_spark), 8, SPARK_STEPS, always_the_same=True)
    assert by_spark.counted["changes of a spec"]
    assert by_spark.counted["compactions"]


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_many_tables_are_the_dictionary_as_clickhouse_reads_them(by_clickhouse: Lake) -> None:
    run(for_clickhouse(by_clickhouse), 2000, STEPS)


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_many_tables_are_the_dictionary_whatever_their_partitions_as_spark_reads_them(by_spark: Lake) -> None:
    run(for_spark(by_spark), 100, SPARK_STEPS)

"""After each commit a table is the dictionary, as two readers of equality deletes have it, that share nothing."""

from __future__ import annotations

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.row_histories.machine import Histories, Lake, of_many_specs, of_one_spec

STEPS, SPARK_STEPS = 6, 30
LEAST = 20
"""Examples in a run of Hypothesis: the first ones are small."""
SEEDS = 1_000
"""Kept for each test."""
ENOUGH = 100
"""Histories in which each rule comes up: Hypothesis leaves out the same ones in many examples of a run."""


def run(machine: type[Histories], histories: int, steps: int, first: int) -> None:
    """At least so many histories in which rows changed, the same ones for the same `first`. Fails with the shortest
    one found whose table is not the dictionary.
    """
    counted, number = machine.lake.counted, first * SEEDS
    while (left := histories - counted["histories"]) > 0:
        given = settings(max_examples=max(left, LEAST), stateful_step_count=steps, database=None)
        run_state_machine_as_test(seed(number)(machine), settings=given)
        number += 1
    print({name: counted[name] for name in sorted(counted)})
    for reader in machine.lake.readers:
        assert counted[f"looks by {reader}"] >= counted["commits"] > 0
    if histories >= ENOUGH:
        for seldom in ("late coordinators", "commits of several batches", "batches never published", "replays"):
            assert counted[seldom], seldom


@pytest.mark.parametrize("first", [0, *(pytest.param(more, marks=pytest.mark.faults) for more in range(1, 8))])
def test_a_table_is_the_dictionary_as_clickhouse_reads_it(first: int, by_clickhouse: Lake) -> None:
    run(of_one_spec(by_clickhouse), 120, STEPS, first)


@pytest.mark.faults
def test_a_table_is_the_dictionary_as_both_read_it(by_both: Lake) -> None:
    run(of_one_spec(by_both), 25, STEPS, 8)


def test_a_table_is_the_dictionary_whatever_its_partitions_as_spark_reads_it(by_spark: Lake) -> None:
    run(of_many_specs(by_spark), 10, SPARK_STEPS, 9)
    assert by_spark.counted["changes of a spec"]
    assert by_spark.counted["compactions"]


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(100, 200))
def test_many_tables_are_the_dictionary_as_clickhouse_reads_them(first: int, by_clickhouse: Lake) -> None:
    run(of_one_spec(by_clickhouse), 490, STEPS, first)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(200, 205))
def test_many_tables_are_the_dictionary_as_both_read_them(first: int, by_both: Lake) -> None:
    run(of_one_spec(by_both), 160, STEPS, first)


@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(205, 210))
def test_many_tables_are_the_dictionary_whatever_their_partitions_as_spark_reads_them(
    first: int, by_spark: Lake
) -> None:
    run(of_many_specs(by_spark), 40, SPARK_STEPS, first)

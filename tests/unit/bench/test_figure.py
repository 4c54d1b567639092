from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from bench.figure import Aim, Figure, Found, document, table
from bench.part import show
from bench.run import PARTS, sizes

OURS = Figure("json", "ours", 240_096, "records/CPU-s", Aim(4.0, of_ratio=True), "connector", {"CPU-s": 8.3})
THEIRS = Figure("connector", "theirs", 57_246, "records/CPU-s")
SLOW = Figure("cold", "a start", 13.1, "s", Aim(12.0, at_most=True))
OPTIONS = argparse.Namespace(json=False, strict=False)
STRICT = argparse.Namespace(json=False, strict=True)


def test_an_aim_of_the_ratio_is_held_to_the_peer() -> None:
    found = Found("throughput", [OURS, THEIRS])
    assert found.ratio(OURS) == pytest.approx(4.194, abs=0.001)
    assert found.reached(OURS) is True
    assert found.ratio(THEIRS) is None
    assert found.reached(THEIRS) is None


def test_an_aim_of_the_ratio_is_open_without_the_peer() -> None:
    found = Found("throughput", [OURS])
    assert found.reached(OURS) is None
    assert found.missed == []


@pytest.mark.parametrize(
    ("aim", "value", "holds"),
    [
        (Aim(12.0, at_most=True), 12.0, True),
        (Aim(12.0, at_most=True), 12.1, False),
        (Aim(0.85), 0.85, True),
        (Aim(0.85), 0.84, False),
    ],
)
def test_an_aim_of_the_figure(aim: Aim, value: float, holds: bool) -> None:
    found = Found("part", [figure := Figure("a", "b", value, "s", aim)])
    assert found.reached(figure) is holds
    assert found.missed == ([] if holds else [figure])


def test_the_table_has_each_figure_and_each_step_that_failed() -> None:
    found = [
        Found("throughput", [OURS, THEIRS], {"avro": "SystemExit: a|b\nc"}),
        Found("starts", [SLOW]),
    ]
    assert table(found).splitlines()[2:] == [
        "| throughput | json: ours | 240,096 records/CPU-s | 4.19 × connector | ≥ 4 × | yes | 8.3 CPU-s |",
        "| throughput | connector: theirs | 57,246 records/CPU-s |  |  |  |  |",
        "| throughput | avro | **failed** |  |  |  | SystemExit: a\\|b c |",
        "| starts | cold: a start | 13.1 s |  | ≤ 12 | **no** |  |",
    ]


def test_the_document_has_the_same() -> None:
    [part] = json.loads(json.dumps(document([Found("throughput", [OURS, THEIRS], {"avro": "error"}, 61.23)])))
    assert (part["part"], part["errors"], part["wall_s"]) == ("throughput", {"avro": "error"}, 61.2)
    assert part["figures"][0] == {
        "name": "json",
        "what": "ours",
        "value": 240_096,
        "unit": "records/CPU-s",
        "peer": "connector",
        "ratio": pytest.approx(4.194, abs=0.001),
        "aim": "≥ 4 ×",
        "reached": True,
        "more": {"CPU-s": 8.3},
    }


def test_a_step_that_failed_fails_the_command_and_a_missed_aim_only_the_strict_one() -> None:
    assert show([Found("starts", [SLOW], {"again": "error"})], OPTIONS) == 1
    assert show([Found("starts", [SLOW])], OPTIONS) == 0
    assert show([Found("starts", [SLOW])], STRICT) == 1
    assert show([Found("throughput", [OURS, THEIRS])], STRICT) == 0


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("smoke", [False, True])
def test_each_part_has_its_sizes_and_the_folder_of_all(name: str, smoke: bool, tmp_path: Path) -> None:
    found = sizes(PARTS[name], argparse.Namespace(smoke=smoke, directory=tmp_path))
    assert found.directory == tmp_path

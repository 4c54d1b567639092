"""The demo of a database as its reader sees it: run in an empty folder, with fewer transactions."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from calve.orchestration.local import broker
from tests import launch, support
from tests.spark_events import noted_in, written_on_spark

ROOT = Path(__file__).parents[2]
PROVEN = re.compile(r"proven: bank\.accounts has what the database has, \d+ rows")


@pytest.fixture(scope="module")
def demo() -> Generator[tuple[Path, str]]:
    """The folder, and what the demo printed in its first run."""
    # For root another user runs the server, who must get there.
    folder = Path(tempfile.mkdtemp(prefix="calve-demo-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with support.short_lived():
            yield folder, _printed(folder, **noted_in(folder / "spark-history"))
    finally:
        broker.stop(folder / "broker")
        shutil.rmtree(folder)


def _printed(folder: Path, **environment: str) -> str:
    return launch.printed(_demo(folder, **environment))


def _demo(folder: Path, **environment: str) -> launch.Done:
    command = ("-m", "examples.postgres_to_iceberg.demo", "--transactions", "200")
    return launch.demo(folder, *command, **environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the server to another user")
def test_a_folder_that_the_server_can_not_enter_is_named(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    done = _demo(tmp_path / "closed")
    assert done.returncode == 1
    assert "may not be entered by user postgres, who runs the server: set CALVE_DEMO_DIR" in done.stderr


@pytest.mark.faults
def test_spark_reads_the_database_and_writes_the_table(demo: tuple[Path, str]) -> None:
    folder, printed = demo
    for pipeline in ("bank_log", "bank"):
        assert written_on_spark(folder / "spark-history", printed, f"calve.demo.{pipeline}") > 0


@pytest.mark.faults
def test_the_table_is_the_database(demo: tuple[Path, str]) -> None:
    _, printed = demo
    assert "demo a PostgreSQL with 100 accounts" in printed
    # The rows that were there already.
    assert "100 records sent; caught up" in printed
    assert PROVEN.search(printed)
    assert "proven by the records of the topics" in printed


@pytest.mark.faults
def test_run_again_it_reads_nothing_twice(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    printed = _printed(folder)
    assert "\n0 records sent; caught up" in printed
    assert PROVEN.search(printed)

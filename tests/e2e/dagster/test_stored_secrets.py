"""What Dagster stores of a pipeline with secrets: runs, events, logs and ticks, of runs that end well and that fail."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import dagster as dg
import pytest

from calve.sink_core.failpoints import VARIABLE
from tests.e2e.dagster.stack import Stack, stack, until
from tests.guarded import OTHER_SECRET, PASSWORD, Guarded, GuardedBroker

FAILED, DONE = [dg.DagsterRunStatus.FAILURE], [dg.DagsterRunStatus.SUCCESS]
ENDS_S = 300.0


@pytest.fixture
def guarded(tmp_path: Path, guarded_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    """A pipeline whose broker asks for a password and whose catalog has a secret key."""
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    guarded = Guarded.create(guarded_broker, tmp_path)
    guarded.grant(*guarded.printed())
    return guarded


def stored(dagster: Stack) -> Iterator[tuple[str, str]]:
    """All that lies below DAGSTER_HOME, rows of databases unpacked: (where, text)."""
    for path in sorted(dagster.home.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(dagster.home)), path.read_bytes().decode("latin-1")
        if path.is_file() and path.suffix == ".db":
            yield f"{path.name} unpacked", "\n".join(rows(path))


def rows(database: Path) -> Iterator[str]:
    with closing(sqlite3.connect(database)) as opened:
        for (table,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in opened.execute(f'SELECT * FROM "{table}"'):
                yield from map(unpacked, row)


def unpacked(value: object) -> str:
    if isinstance(value, bytes):
        with suppress(zlib.error):
            value = zlib.decompress(value)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


@pytest.mark.faults
def test_secrets_of_a_pipeline_are_in_nothing_that_dagster_keeps(guarded: Guarded, tmp_path: Path) -> None:
    flow = guarded.flow
    flow.produce(range(20))
    # The first run fails at its first batch, which is its second publish; the next one has only that.
    crash = {VARIABLE: "publish.after-events=raise@2"}
    environment = {"CALVE_TEST_PASSWORD": PASSWORD, "CALVE_TEST_KEY": OTHER_SECRET, **crash}
    with stack(tmp_path / "dagster", [flow.pipeline.path], environment=environment) as dagster:
        dagster.daemon()
        until(lambda: dagster.runs(flow.name, statuses=FAILED), timeout_s=ENDS_S, why=dagster.logs)
        until(lambda: dagster.runs(flow.name, statuses=DONE), timeout_s=ENDS_S, why=dagster.logs)
        assert flow.ids() == list(range(20))
        dagster.stop()
        kept = dict(stored(dagster)) | {"logs": dagster.logs()}
    everything = "\n".join(kept.values())
    for control in (flow.topic, "FailpointReached", f"{flow.name}_lag", f"{flow.name}_ingest_job"):
        assert control in everything, "what is looked through is what was stored"
    for secret in (PASSWORD, OTHER_SECRET):
        assert [where for where, text in kept.items() if secret in text] == []

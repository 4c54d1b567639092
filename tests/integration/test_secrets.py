"""A broker that asks for TLS and a password: the password opens it, and is found nowhere afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from calve.sink_core.codes import Code
from calve.sink_core.control.events import Event
from calve.sink_core.errors import EXIT_UNREACHABLE
from tests import support
from tests.codes import says
from tests.guarded import OTHER_SECRET, PASSWORD, Guarded, GuardedBroker


@pytest.fixture
def guarded(tmp_path: Path, guarded_broker: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    return Guarded.create(guarded_broker, tmp_path)


def everything_kept(guarded: Guarded) -> Iterator[tuple[str, str]]:
    """All that the runs left behind, packed formats unpacked: (where, text)."""
    flow = guarded.flow
    yield "events", repr(flow.events(Event))
    yield "group", repr(flow.positions())
    for name in flow.pipeline.table_names:
        table = flow.load_table(name)
        yield name, table.metadata.model_dump_json()
        yield f"rows of {name}", repr(table.scan().to_arrow().to_pylist())
    for path in sorted([*guarded.directory.rglob("*"), *guarded.broker.directory.rglob("*")]):
        if path.is_file():
            yield str(path), path.read_bytes().decode("latin-1")
            if path.suffix == ".avro":
                with path.open("rb") as file:
                    yield f"{path} unpacked", repr(list(fastavro.reader(file)))


def test_a_password_opens_the_connection_and_is_kept_nowhere(guarded: Guarded) -> None:
    flow, file = guarded.flow, str(guarded.flow.pipeline.path)
    guarded.grant(*guarded.printed())
    flow.produce(range(20))
    support.produce(flow.bootstrap, flow.topic, [b"{ broken"], partition=1)
    crashed = guarded.cold("run", file, failpoint="publish.after-events=raise")
    assert crashed.returncode not in (0, EXIT_UNREACHABLE), "a fault in Calve, with whatever its traceback shows"
    assert "FailpointReached" in crashed.stderr
    said = [crashed.stdout, crashed.stderr]
    for command in ("run", "status", "status --json", "plan --json", "verify --deep --json", "config", "check"):
        name, *options = command.split()
        done = guarded.calve(name, file, *options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        said += [done.stdout, done.stderr]
    assert flow.ids() == list(range(20))
    kept = dict(everything_kept(guarded)) | {f"output {i}": text for i, text in enumerate(said)}
    assert any(guarded.user in text for text in kept.values())
    assert any(flow.topic in text for where, text in kept.items() if "broker.log" not in where)
    for secret in (PASSWORD, OTHER_SECRET):
        assert [where for where, text in kept.items() if secret in text] == []


def test_a_wrong_password_is_told_and_not_shown(guarded: Guarded) -> None:
    wrong = support.unique("wr0ng")
    done = guarded.calve("plan", str(guarded.flow.pipeline.path), password=wrong)
    assert done.returncode == EXIT_UNREACHABLE
    says(done.stderr, Code.NO_BROKER, "SASL authentication error")
    assert "Traceback" not in done.stderr
    assert not any(secret in done.stdout + done.stderr for secret in (wrong, PASSWORD))

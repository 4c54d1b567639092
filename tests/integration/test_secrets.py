"""A broker that asks for TLS and a password: the password opens it, and is found nowhere afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from orchestration.broker import HOST, free_port
from sink_core.control.events import Event
from sink_core.errors import EXIT_UNREACHABLE
from tests import support
from tests.integration.conftest import StartBroker
from tests.pipelines import TIMEOUT_S, Flow

USER = "calve-user"
PASSWORD = support.unique("s3cr3t")
OTHER_SECRET = support.unique("k3y")
LISTENER = "listener.name.sasl_ssl"
MECHANISM = "SCRAM-SHA-512"


@dataclass(frozen=True)
class Guarded:
    """A pipeline whose broker asks for a password, and the folder all processes of it write to."""

    flow: Flow
    directory: Path

    def calve(self, *arguments: str, password: str = PASSWORD) -> subprocess.CompletedProcess[str]:
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "CALVE_TEST_PASSWORD": password,
            "CALVE_TEST_KEY": OTHER_SECRET,
            "TMPDIR": str(scratch),
        }
        command = [str(Path(sys.executable).with_name("calve")), *arguments]
        return subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=300, check=False
        )


@pytest.fixture
def guarded(tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> Guarded:
    key, certificate = self_signed(tmp_path)
    port = free_port()
    broker = start_broker(
        properties={
            "listeners": f"SASL_SSL://{HOST}:{port}",
            "sasl.enabled.mechanisms": MECHANISM,
            f"{LISTENER}.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"{LISTENER}.ssl.keystore.type": "PEM",
            f"{LISTENER}.ssl.keystore.key": key.read_text(),
            f"{LISTENER}.ssl.keystore.certificate.chain": certificate.read_text(),
        }
    )
    let_in(broker.bootstrap)
    topic = support.create_topic(broker.bootstrap, support.unique("guarded"), 2)
    connection = {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": "${ENV:CALVE_TEST_PASSWORD}",
        "ssl.ca.location": str(certificate),
    }
    flow = Flow.create(
        tmp_path,
        broker.bootstrap,
        topic,
        kafka=connection,
        lake_properties={"s3.secret-access-key": "${ENV:CALVE_TEST_KEY}"},
    )
    monkeypatch.setenv("CALVE_TEST_PASSWORD", PASSWORD)
    return Guarded(flow, tmp_path)


def self_signed(directory: Path) -> tuple[Path, Path]:
    """A key and a certificate for this host that is its own authority."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    named = ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *named], check=True, capture_output=True)
    return key, certificate


def let_in(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted])[USER].result(TIMEOUT_S)


def everything_kept(guarded: Guarded) -> Iterator[tuple[str, str]]:
    """All that the runs left behind, packed formats unpacked: (where, text)."""
    flow = guarded.flow
    yield "events", repr(flow.events(Event))
    yield "group", repr(flow.positions())
    for name in flow.pipeline.table_names:
        table = flow.load_table(name)
        yield name, table.metadata.model_dump_json()
        yield f"rows of {name}", repr(table.scan().to_arrow().to_pylist())
    for path in sorted(guarded.directory.rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes().decode("latin-1")
            if path.suffix == ".avro":
                with path.open("rb") as file:
                    yield f"{path} unpacked", repr(list(fastavro.reader(file)))


def test_a_password_opens_the_connection_and_is_kept_nowhere(guarded: Guarded) -> None:
    flow, file = guarded.flow, str(guarded.flow.pipeline.path)
    flow.produce(range(20))
    support.produce(flow.bootstrap, flow.topic, [b"{ broken"], partition=1)
    said: list[str] = []
    for command in ("run", "status", "status --json", "plan --json", "verify --deep --json", "config", "check"):
        name, *options = command.split()
        done = guarded.calve(name, file, *options)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        said += [done.stdout, done.stderr]
    assert flow.ids() == list(range(20))
    kept = dict(everything_kept(guarded)) | {f"output {i}": text for i, text in enumerate(said)}
    assert any(USER in text for text in kept.values())
    assert any(flow.topic in text for where, text in kept.items() if "broker.log" not in where)
    for secret in (PASSWORD, OTHER_SECRET):
        assert [where for where, text in kept.items() if secret in text] == []


def test_a_wrong_password_is_told_and_not_shown(guarded: Guarded) -> None:
    wrong = support.unique("wr0ng")
    done = guarded.calve("plan", str(guarded.flow.pipeline.path), password=wrong)
    assert done.returncode == EXIT_UNREACHABLE
    assert "sasl" in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert not any(secret in done.stdout + done.stderr for secret in (wrong, PASSWORD))

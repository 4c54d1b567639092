"""A broker that demands TLS and a SCRAM password and grants nothing unless told to, and `calve` as its user."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from orchestration.detached import HOST, free_port
from sink_core.failpoints import VARIABLE
from tests import support
from tests.integration.conftest import StartBroker
from tests.pipelines import TIMEOUT_S, Flow

USER = "calve-user"
PASSWORD = support.unique("s3cr3t")
OTHER_SECRET = support.unique("k3y")
LISTENER = "listener.name.sasl_ssl"
MECHANISM = "SCRAM-SHA-512"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Who comes by the plaintext listener: the tests themselves.
    "super.users": "User:ANONYMOUS",
}


@dataclass(frozen=True)
class Guarded:
    """A pipeline whose broker asks for a password, and the folder all processes of it write to."""

    flow: Flow
    directory: Path
    address: str

    def calve(self, *arguments: str, password: str = PASSWORD, failpoint: str = "") -> subprocess.CompletedProcess[str]:
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            "CALVE_TEST_PASSWORD": password,
            "CALVE_TEST_KEY": OTHER_SECRET,
            "TMPDIR": str(scratch),
            VARIABLE: failpoint,
        }
        command = [str(Path(sys.executable).with_name("calve")), *arguments]
        return subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, text=True, timeout=300, check=False
        )


def start_guarded(directory: Path, start_broker: StartBroker, *, authorizer: bool = False) -> Guarded:
    """Start the broker and write a pipeline on a topic of it; `flow` itself talks to it as its administrator."""
    key, certificate = self_signed(directory)
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
            **(AUTHORIZER if authorizer else {}),
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
        directory,
        broker.bootstrap,
        topic,
        kafka=connection,
        lake_properties={"s3.secret-access-key": "${ENV:CALVE_TEST_KEY}"},
    )
    return Guarded(flow, directory, f"{HOST}:{port}")


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

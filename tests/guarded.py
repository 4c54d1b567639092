"""A broker that demands TLS and a SCRAM password and grants nothing unless told to, and `calve` as one of its users."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from calve.orchestration.local import broker as embedded
from calve.sink_core.detached import HOST, free_port
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.locks import exclusive
from tests import support
from tests.launch import Done, cold, forked
from tests.pipelines import Flow
from tests.support import TIMEOUT_S

PASSWORD = support.unique("s3cr3t")
OTHER_SECRET = support.unique("k3y")
LISTENER = "listener.name.sasl_ssl"
MECHANISM = "SCRAM-SHA-512"
EVERYBODY = "*"
ALLOW = AclPermissionType.ALLOW
KINDS = {
    "--cluster": ResourceType.BROKER,
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}


@dataclass(frozen=True, slots=True)
class GuardedBroker:
    """`bootstrap` is for its administrator, the tests themselves; users with a password come by `address`."""

    directory: Path
    bootstrap: str
    address: str

    @property
    def certificate(self) -> Path:
        return self.directory / "certificate.pem"

    @classmethod
    def started(cls, directory: Path) -> GuardedBroker:
        """The running one of `directory`, else a new one; safe when several processes ask at once."""
        with exclusive(directory / "guarded.lock"):
            if not (directory / "port").exists():
                self_signed(directory)
                (directory / "port").write_text(str(free_port()))
        address = f"{HOST}:{(directory / 'port').read_text()}"
        properties = {
            "listeners": f"SASL_SSL://{address}",
            "sasl.enabled.mechanisms": MECHANISM,
            f"{LISTENER}.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"{LISTENER}.ssl.keystore.type": "PEM",
            f"{LISTENER}.ssl.keystore.key": (directory / "key.pem").read_text(),
            f"{LISTENER}.ssl.keystore.certificate.chain": (directory / "certificate.pem").read_text(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # Who comes by the plaintext listener.
            "super.users": "User:ANONYMOUS",
        }
        with support.short_lived():
            broker = embedded.start(directory, properties=properties, heap_mb=512)
        return cls(directory, broker.bootstrap, address)


@dataclass(frozen=True)
class Guarded:
    """A pipeline whose broker asks for a password, and the folder all processes of it write to.

    `flow` itself talks to the broker as its administrator; `user` has the password and may do nothing yet.
    """

    broker: GuardedBroker
    directory: Path
    user: str
    flow: Flow

    @classmethod
    def create(cls, broker: GuardedBroker, directory: Path) -> Guarded:
        """A pipeline on a topic of its own, with a user of its own."""
        user = support.unique("calve-user")
        let_in(broker.bootstrap, user)
        topic = support.create_topic(broker.bootstrap, support.unique("guarded"), 2)
        flow = Flow.create(
            directory,
            broker.bootstrap,
            topic,
            kafka={"bootstrap.servers": broker.address, **login(broker, user)},
            lake_properties={"s3.secret-access-key": "${ENV:CALVE_TEST_KEY}"},
        )
        return cls(broker, directory, user, flow)

    def calve(self, *arguments: str, password: str = PASSWORD) -> Done:
        """The user's command in a process of its own."""
        return forked(*arguments, cwd=self._scratch(), **self._environment(password))

    def cold(self, *arguments: str, failpoint: str = "") -> Done:
        """As `calve`, by the console script and on Spark."""
        return cold(*arguments, cwd=self._scratch(), **self._environment(PASSWORD), **{VARIABLE: failpoint})

    def printed(self) -> list[str]:
        """The lines for `kafka-acls` that `calve check --acls` prints."""
        said = self.calve("check", str(self.flow.pipeline.path), "--acls").stdout
        return [line for line in said.splitlines() if line.startswith("kafka-acls ")]

    def grant(self, *lines: str) -> None:
        """Do what such lines say."""
        grant(self.flow.admin, *lines)

    @contextmanager
    def taken_away(self, line: str) -> Iterator[None]:
        """Without what one of the lines has granted."""
        with taken_away(self.flow.admin, line):
            yield

    def _scratch(self) -> Path:
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        return scratch

    def _environment(self, password: str) -> Mapping[str, str]:
        secrets = {"CALVE_TEST_PASSWORD": password, "CALVE_TEST_KEY": OTHER_SECRET}
        return {**secrets, "TMPDIR": str(self._scratch())}


def login(broker: GuardedBroker, user: str) -> dict[str, str]:
    """How a client of librdkafka comes in, its password by reference."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": "${ENV:CALVE_TEST_PASSWORD}",
        "ssl.ca.location": str(broker.certificate),
    }


def grant(admin: AdminClient, *lines: str) -> None:
    """Do what such lines say."""
    bindings = [binding for line in lines for binding in bindings_of(line)]
    for granted in admin.create_acls(bindings).values():
        granted.result(TIMEOUT_S)


@contextmanager
def taken_away(admin: AdminClient, line: str) -> Iterator[None]:
    """Without what one of such lines has granted."""
    filters = [
        AclBindingFilter(b.restype, b.name, b.resource_pattern_type, b.principal, b.host, b.operation, ALLOW)
        for b in bindings_of(line)
    ]
    for removed in admin.delete_acls(filters).values():
        assert removed.result(TIMEOUT_S)
    yield
    grant(admin, line)


def bindings_of(line: str) -> list[AclBinding]:
    """What Kafka's tool makes of such a line."""
    words = shlex.split(line)
    values = dict(pairwise(words))
    [kind] = KINDS.keys() & set(words)
    pattern = ResourcePatternType[values.get("--resource-pattern-type", "literal").upper()]
    operations = [OPERATIONS[after.lower()] for word, after in pairwise(words) if word == "--operation"]
    who = values["--allow-principal"]
    return [
        AclBinding(KINDS[kind], values[kind], pattern, who, EVERYBODY, operation, ALLOW) for operation in operations
    ]


def self_signed(directory: Path) -> None:
    """A key and a certificate for this host that is its own authority."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    named = ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *named], check=True, capture_output=True)


def let_in(bootstrap: str, user: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = UserScramCredentialUpsertion(user, credential, PASSWORD.encode())
    admin.alter_user_scram_credentials([wanted])[user].result(TIMEOUT_S)

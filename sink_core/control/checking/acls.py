"""ACLs on a Kafka cluster as values, and the `kafka-acls` lines that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calve.sink_core.config.references import malformed, redact
from calve.sink_core.config.routing import beginning
from calve.sink_core.config.topics import Topics
from calve.sink_core.kafka.compat import AclOperation

READ_SOURCE = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
USE_CONTROL = (
    AclOperation.CREATE,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
)
USE_GROUP = (AclOperation.READ, AclOperation.DESCRIBE)
READ_WITH_GROUP = (AclOperation.DESCRIBE,)
USE_TRANSACTIONS = (AclOperation.WRITE, AclOperation.DESCRIBE)

SHARED_GROUPS = "calve-"
"""How the ids of groups begin that sampling and recounting read with."""

_PLACEHOLDER = "PRINCIPAL"


@dataclass(frozen=True, slots=True)
class Acl:
    """Operations on one resource; `prefixed` if `name` is the beginning of the resources' names."""

    resource: Literal["topic", "group", "transactional-id"]
    name: str
    operations: tuple[AclOperation, ...]
    prefixed: bool = False


def of_source(source: Topics) -> Iterator[Acl]:
    """To read the topics. Of those by pattern only how their names begin can be granted; `*` stands for all."""
    for topic in source.topics:
        yield Acl("topic", topic, READ_SOURCE)
    if source.topics_regex is not None:
        begins = beginning(source.topics_regex)
        yield Acl("topic", begins or "*", READ_SOURCE, prefixed=bool(begins))


def of_home(group: str, control_topic: str) -> tuple[Acl, ...]:
    """To publish: on the cluster that has control topic and group, whatever else a kind writes there.

    DELETE on the control topic is for its trimming. Kafka wants DESCRIBE on a consumer's group although none of these
    consumers joins one: a pipeline's have names that begin with its group's.
    """
    return (
        Acl("topic", control_topic, USE_CONTROL),
        Acl("group", group, USE_GROUP, prefixed=True),
        Acl("transactional-id", f"{group}.", USE_TRANSACTIONS, prefixed=True),
    )


def lines(properties: Mapping[str, Any], acls: Iterable[Acl]) -> list[str]:
    """One `kafka-acls` command per resource, for Kafka's own command line. `properties` are those of the cluster.

    The principal is `sasl.username` where that is written literally; else `PRINCIPAL` stands for it.
    """
    shown = redact(properties)
    server = shlex.quote(str(shown["bootstrap.servers"]))
    principal = shlex.quote(f"User:{_principal(shown.get('sasl.username'))}")
    return [
        f"kafka-acls --bootstrap-server {server} --add --allow-principal {principal} {' '.join(_arguments(acl))}"
        for acl in acls
    ]


def _principal(username: object) -> str:
    literal = isinstance(username, str) and "${" not in username and not malformed(username)
    return str(username) if literal else _PLACEHOLDER


def _arguments(acl: Acl) -> Iterator[str]:
    for operation in acl.operations:
        yield f"--operation {''.join(word.capitalize() for word in operation.name.split('_'))}"
    yield f"--{acl.resource} {shlex.quote(acl.name)}"
    if acl.prefixed:
        yield "--resource-pattern-type prefixed"

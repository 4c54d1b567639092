"""The ACLs a pipeline needs on its Kafka cluster, and the `kafka-acls` lines that grant them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from calve.sink_core.config.references import malformed, redact
from calve.sink_core.config.routing import beginning
from calve.sink_core.config.sink_pipeline import SinkPipeline
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
WRITE_LETTERS = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
USE_GROUP = (AclOperation.READ, AclOperation.DESCRIBE)
USE_SHARED_GROUP = (AclOperation.DESCRIBE,)
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


def needed(pipeline: SinkPipeline) -> tuple[Acl, ...]:
    """Everything a pipeline does on Kafka, `calve check` included.

    DELETE on the control topic is for its trimming. Kafka wants DESCRIBE on a consumer's group although none of these
    consumers joins one: a pipeline's have names that begin with its group's, those of any pipeline begin with `calve-`.
    """
    return (
        *(Acl("topic", topic, READ_SOURCE) for topic in pipeline.config.source.topics),
        *_matching(pipeline.config.source.topics_regex),
        Acl("topic", pipeline.control_topic, USE_CONTROL),
        *([Acl("topic", pipeline.dead_letter_topic, WRITE_LETTERS)] if pipeline.dead_letter_topic else ()),
        Acl("group", pipeline.group, USE_GROUP, prefixed=True),
        Acl("group", SHARED_GROUPS, USE_SHARED_GROUP, prefixed=True),
        Acl("transactional-id", f"{pipeline.group}.", USE_TRANSACTIONS, prefixed=True),
    )


def _matching(pattern: str | None) -> Iterator[Acl]:
    """Of topics by pattern only how their names begin can be granted; `*` stands for all."""
    if pattern is not None:
        begins = beginning(pattern)
        yield Acl("topic", begins or "*", READ_SOURCE, prefixed=bool(begins))


def kafka_acls_lines(pipeline: SinkPipeline) -> list[str]:
    """One `kafka-acls` command per resource, for Kafka's own command line.

    The principal is `sasl.username` where that is written literally; else `PRINCIPAL` stands for it.
    """
    properties = redact(pipeline.kafka.properties)
    server = shlex.quote(str(properties["bootstrap.servers"]))
    principal = shlex.quote(f"User:{_principal(properties.get('sasl.username'))}")
    return [
        f"kafka-acls --bootstrap-server {server} --add --allow-principal {principal} {' '.join(_arguments(acl))}"
        for acl in needed(pipeline)
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

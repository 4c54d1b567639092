"""The ACLs a sink needs on its Kafka cluster."""

from __future__ import annotations

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking import acls
from calve.sink_core.control.checking.acls import Acl
from calve.sink_core.kafka.compat import AclOperation

WRITE_LETTERS = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)


def needed(pipeline: SinkPipeline) -> tuple[Acl, ...]:
    """Everything a sink does on Kafka, `calve check` included. Groups that begin with `calve-` are any pipeline's."""
    letters = pipeline.dead_letter_topic
    control, group, transactions = acls.of_home(pipeline.group, pipeline.control_topic)
    return (
        *acls.of_source(pipeline.config.source),
        control,
        *([Acl("topic", letters, WRITE_LETTERS)] if letters else ()),
        group,
        Acl("group", acls.SHARED_GROUPS, acls.READ_WITH_GROUP, prefixed=True),
        transactions,
    )


def kafka_acls_lines(pipeline: SinkPipeline) -> list[str]:
    """The lines that grant them."""
    return acls.lines(pipeline.kafka.properties, needed(pipeline))

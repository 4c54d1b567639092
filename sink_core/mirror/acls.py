"""The ACLs a mirror needs on both of its clusters."""

from __future__ import annotations

from collections.abc import Iterator

from calve.sink_core.config.mirror import StartAtMirror
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.routing import beginning
from calve.sink_core.config.topics import StartAtGroup
from calve.sink_core.control.checking import acls
from calve.sink_core.control.checking.acls import Acl
from calve.sink_core.kafka.compat import AclOperation
from calve.sink_core.mirror.fail_back import control_topic_of


def on_source(pipeline: MirrorPipeline) -> tuple[Acl, ...]:
    """To read. Kafka wants DESCRIBE on a consumer's group although none of these consumers joins one."""
    start = pipeline.config.source.start
    return (
        *acls.of_source(pipeline.config.source),
        Acl("group", pipeline.group, acls.READ_WITH_GROUP),
        Acl("group", acls.SHARED_GROUPS, acls.READ_WITH_GROUP, prefixed=True),
        *([Acl("group", start.group, acls.READ_WITH_GROUP)] if isinstance(start, StartAtGroup) else ()),
        *(_other_mirror(control_topic_of(pipeline, start.mirror)) if isinstance(start, StartAtMirror) else ()),
        *_groups(pipeline, acls.READ_WITH_GROUP),
    )


def on_target(pipeline: MirrorPipeline) -> tuple[Acl, ...]:
    """To create, grow and write remote topics, and to publish."""
    source, operations = pipeline.config.source, remote_operations(pipeline)
    begins = _remote_beginning(pipeline)
    return (
        *(Acl("topic", pipeline.remote_of(topic), operations) for topic in source.topics),
        *([Acl("topic", begins or "*", operations, prefixed=bool(begins))] if source.topics_regex is not None else ()),
        *acls.of_home(pipeline.group, pipeline.control_topic),
        *_groups(pipeline, acls.USE_GROUP),
        *(Acl("topic", topic, needed) for topic, needed in checkpoint_topics(pipeline).items()),
    )


def group_beginnings(pipeline: MirrorPipeline) -> list[str]:
    """How the names of groups begin whose positions are put on the target, as far as their patterns say."""
    return sorted({beginning(pattern) for pattern in pipeline.config.groups.include})


def checkpoint_topics(pipeline: MirrorPipeline) -> dict[str, tuple[AclOperation, ...]]:
    """What is done with the topics that MirrorMaker 2's client looks into; empty if no checkpoints are written."""
    groups = pipeline.config.groups
    if not groups.include or not groups.checkpoints:
        return {}
    checkpoints, heartbeats = pipeline.looked_into
    made = (AclOperation.CREATE, AclOperation.DESCRIBE)
    return {checkpoints: (AclOperation.CREATE, AclOperation.WRITE, AclOperation.DESCRIBE), heartbeats: made}


def remote_operations(pipeline: MirrorPipeline) -> tuple[AclOperation, ...]:
    """What is done with remote topics. READ is for the positions: the group has one for each of their partitions."""
    syncs = (AclOperation.ALTER_CONFIGS,) if pipeline.config.target.sync_config else ()
    return (
        AclOperation.CREATE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        *syncs,
    )


def kafka_acls_lines(pipeline: MirrorPipeline) -> list[str]:
    """The lines that grant them, those of the source first."""
    return [
        *acls.lines(pipeline.source.properties, on_source(pipeline)),
        *acls.lines(pipeline.kafka.properties, on_target(pipeline)),
    ]


def _groups(pipeline: MirrorPipeline, needed: tuple[AclOperation, ...]) -> Iterator[Acl]:
    for begins in group_beginnings(pipeline):
        yield Acl("group", begins or "*", needed, prefixed=bool(begins))


def _remote_beginning(pipeline: MirrorPipeline) -> str:
    """How the names of all remote topics by pattern begin."""
    return pipeline.remote_of("\0").partition("\0")[0] + beginning(pipeline.config.source.topics_regex or "")


def _other_mirror(topic: str) -> Iterator[Acl]:
    yield Acl("topic", topic, acls.READ_SOURCE)
    yield Acl("group", f"{topic}.reader", acls.READ_WITH_GROUP)

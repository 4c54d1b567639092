"""Whether another mirror, at work the other way, would copy back what this one copies."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing

from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import ConfigError, FindingError, ProtocolError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.failures import reported
from calve.sink_core.kafka.source import first_values
from calve.sink_core.mirror.plane import SOURCE_CLUSTER
from calve.sink_core.mirror.state import MIRROR, MirrorState

_CONTROL = re.compile(r"calve\.[^.]+\.[^.]+\.control")


def check_no_cycle(
    pipeline: MirrorPipeline, source: AdminClient, target_cluster_id: str, topics: Iterable[str]
) -> None:
    """Raise ConfigError for a topic whose control topics on the source say that a mirror at work writes to it, and
    reads from this one's target what this one would write. Where remote topics have the name of their cluster, no
    mirror gives a topic its first name back.
    """
    if "{cluster}" in pipeline.config.target.names:
        return
    for name in _control_topics(pipeline, source):
        state = _state(pipeline, source, name)
        if state is None or state.paused or state.bound is None:
            continue
        if state.bound.fingerprint != SOURCE_CLUSTER + target_cluster_id:
            continue
        written = {at.topic for at in state.partitions}
        for topic in topics:
            remote = pipeline.remote_of(topic)
            if topic in written and remote in state.upstream_ids:
                raise ConfigError(
                    f"{topic}: mirror {state.bound.pipeline} reads {remote} of {pipeline.config.target_alias} and "
                    f"writes to {topic} of {pipeline.config.source_alias}: each record would go round for ever",
                    hint="set target.names to {cluster}.{topic}, leave the topic out, or pause the other mirror",
                    code=Code.CYCLE,
                )


def _control_topics(pipeline: MirrorPipeline, source: AdminClient) -> list[str]:
    """Those whose first event is one of a mirror's: a cluster can have a thousand of other kinds."""
    with reported("listing the topics of the source"):
        there = source.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    control = [topic for topic in there if _CONTROL.fullmatch(topic)]
    first = first_values(pipeline.source.properties, control, timeout_s=ADMIN_TIMEOUT_S)
    return sorted(topic for topic, value in first.items() if value is not None and _may_be_a_mirrors(value))


def _may_be_a_mirrors(value: bytes) -> bool:
    try:
        MIRROR.decode(value)
    except ProtocolError:
        return False
    return True


def _state(pipeline: MirrorPipeline, source: AdminClient, topic: str) -> MirrorState | None:
    """What a control topic says; None if it is another kind's, may not be read, or a finding stops its mirror."""
    log = ControlLog(pipeline.source.properties, topic, MIRROR, admin=source)
    with closing(log):
        try:
            return log.refresh() if log.open(create=False) else None
        except (ConfigError, ProtocolError, FindingError):
            return None

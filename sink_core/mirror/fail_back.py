"""Where a mirror begins that goes back the way another came: behind what that one wrote."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from calve.sink_core.codes import Code
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.log import ControlLog
from calve.sink_core.errors import ConfigError
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.segments import translate_back, unbroken
from calve.sink_core.mirror.state import MIRROR, MirrorState
from calve.sink_core.mirror.topics import Seen
from calve.sink_core.offsets import TopicPartition


def control_topic_of(pipeline: MirrorPipeline, name: str) -> str:
    """The control topic of another mirror of the deployment."""
    return f"calve.{pipeline.deployment}.{name}.control"


def other_mirror(plane: MirrorPlane, name: str) -> MirrorState:
    """What the control log of the mirror `name` says, which writes to the cluster that is read here.

    Raises ConfigError if there is none.
    """
    pipeline = plane.pipeline
    topic = control_topic_of(pipeline, name)
    log = ControlLog(pipeline.source.properties, topic, MIRROR, admin=plane.source_admin)
    with closing(log):
        if not log.open(create=False):
            raise ConfigError(
                f"source.start: no mirror {name} writes to {pipeline.config.source_alias}: it has no topic {topic}",
                hint="name the mirror that writes into the topics which are now read, or use earliest or latest",
                code=Code.START_MIRROR,
            )
        return log.refresh_to_end()


def behind(plane: MirrorPlane, name: str, seen: Seen) -> Mapping[TopicPartition, int]:
    """Of each source partition the offset behind the last record that the mirror `name` wrote there; of one that it
    did not write to, the log start. Raises ConfigError if there is none, or it is at work: what it has yet to write
    would be copied back.
    """
    state = other_mirror(plane, name)
    if state.paused is None:
        raise ConfigError(
            f"source.start: mirror {name} is not paused: what it has yet to write would be copied back",
            hint="pause it: calve pause FILE --wait, with its file",
            code=Code.START_MIRROR,
        )
    return {at: max(start, state.target_ends.get(at, start)) for at, start in seen.starts.items()}


def same_topic(other: MirrorState, topic: str, remote: str, remote_id: str | None) -> bool:
    """Whether what is read here from `topic`, which the other mirror wrote, it had from the very topic `remote`, which
    is written to here.

    The log does not say which remote topic is whose; its names are all made by one pattern.
    """
    longer = sum(map(len, other.topic_ids)) - sum(map(len, other.upstream_ids))
    made = remote in topic and len(topic) - len(remote) == longer / max(1, len(other.upstream_ids))
    return made and topic in other.topic_ids and remote_id is not None and other.upstream_ids.get(remote) == remote_id


def back(other: MirrorState, at: TopicPartition, offset: int) -> int | None:
    """Where a group that has read up to `offset` of a partition, which the other mirror wrote, is on the source of that
    one. Exact behind its last record, and where its log still has the range; see `translate_back` for bounds.
    """
    if offset >= other.target_ends.get(at, offset + 1):
        return other.partitions.get(at)
    return translate_back(unbroken(other.copied.get(at, ())), offset)

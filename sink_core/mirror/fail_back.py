"""Where a mirror begins that goes back the way another came: behind what that one wrote."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.log import ControlLog
from calve.sink_core.error_codes.files import START_MIRROR
from calve.sink_core.errors import ConfigError
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.state import MIRROR, MirrorState
from calve.sink_core.mirror.topics import Seen
from calve.sink_core.offsets import TopicPartition


def control_topic_of(pipeline: MirrorPipeline, name: str) -> str:
    """The control topic of another mirror of the deployment."""
    return f"calve.{pipeline.deployment}.{name}.control"


def other_mirror(plane: MirrorPlane, name: str) -> MirrorState:
    """What the control log of the mirror `name` says, which writes to the cluster that is read here.

    Raises ConfigError if there is none, or it is at work: what it has yet to write would be copied back.
    """
    pipeline = plane.pipeline
    topic = control_topic_of(pipeline, name)
    log = ControlLog(pipeline.source.properties, topic, MIRROR, admin=plane.source_admin)
    with closing(log):
        if not log.open(create=False):
            raise ConfigError(
                f"source.start: no mirror {name} writes to {pipeline.config.source_alias}: it has no topic {topic}",
                hint="name the mirror that writes into the topics which are now read, or use earliest or latest",
                code=START_MIRROR,
            )
        state = log.refresh_to_end()
    if state.paused is None:
        raise ConfigError(
            f"source.start: mirror {name} is not paused: what it has yet to write would be copied back",
            hint="pause it: calve pause FILE --wait, with its file",
            code=START_MIRROR,
        )
    return state


def behind(plane: MirrorPlane, name: str, seen: Seen) -> Mapping[TopicPartition, int]:
    """Of each source partition the offset behind the last record that the mirror `name` wrote there; of one that it
    did not write to, the log start. Raises ConfigError as `other_mirror`.
    """
    state = other_mirror(plane, name)
    return {at: max(start, state.target_ends.get(at, start)) for at, start in seen.starts.items()}

"""The positions of a sink, out of its group into a file and out of a file into its bootstrap."""

from __future__ import annotations

from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Verdict
from calve.sink_core.control.positions_file import OnePosition, PositionsFile, checked
from calve.sink_core.errors import ConfigError
from calve.sink_core.offsets import Offsets
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.loop.session import Session


def export(session: Session) -> PositionsFile:
    """The positions as they are. Raises ConfigError before the first publish, FindingError if they contradict it."""
    if not session.read_only() or session.log.state.last_batch_id is None:
        raise ConfigError(
            f"pipeline {session.pipeline.name} has not published anything yet",
            hint="calve run FILE",
            code=Code.NOT_RUN_YET,
        )
    session.bind()
    source = Planner(session).look()
    return PositionsFile(
        pipeline=session.pipeline.name,
        pipeline_id=session.pipeline_id,
        batch_id=session.log.state.last_batch_id,
        cluster_id=session.cluster_id,
        topic_ids=source.topic_ids,
        positions=tuple(
            OnePosition(topic=at.topic, partition=at.partition, offset=p.offset)
            for at, p in sorted(source.positions.items())
        ),
    )


def begin_with(session: Session, wanted: PositionsFile) -> Offsets:
    """The bootstrap of a pipeline that has never published, with these positions in place of `source.start`.

    Raises ConfigError if it has, or if the positions are not those of its topics.
    """
    session.bind()
    planner = Planner(session)
    if session.log.state.last_publish is not None:
        raise _published(session)
    source = planner.look()
    starts = checked(
        wanted,
        cluster_id=session.cluster_id,
        topic_ids=source.topic_ids,
        starts=source.starts,
        ends=source.ends,
    )
    if planner.bootstrap(source, starts).verdict is not Verdict.PUBLISH:
        raise _published(session)
    return starts


def _published(session: Session) -> ConfigError:
    return ConfigError(
        f"pipeline {session.pipeline.name} has published already: its positions are its own",
        hint="import into a pipeline of a new name, before its first run",
        code=Code.HAS_PUBLISHED,
    )

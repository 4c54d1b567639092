"""Positions as a file: written out of one pipeline, and what another one begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from calve.sink_core.control.decision import Verdict
from calve.sink_core.error_codes.files import NOT_RUN_YET, UNREADABLE_FILE
from calve.sink_core.error_codes.operations import HAS_PUBLISHED, OTHER_POSITIONS, POSITIONS_FILE
from calve.sink_core.errors import ConfigError
from calve.sink_core.offsets import Offsets, TopicPartition
from calve.sink_core.sink.loop.planning import Planner, Source
from calve.sink_core.sink.loop.session import Session


class OnePosition(BaseModel):
    """The next offset to read of a partition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    partition: NonNegativeInt
    offset: NonNegativeInt


class PositionsFile(BaseModel):
    """What `calve positions export` writes. `batch_id` is the publish that put the positions where they are.

    Offsets mean something for the cluster and the topic ids named only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str
    pipeline_id: str
    batch_id: str
    cluster_id: str
    topic_ids: Mapping[str, str]
    positions: tuple[OnePosition, ...]


def export(session: Session) -> PositionsFile:
    """The positions as they are. Raises ConfigError before the first publish, FindingError if they contradict it."""
    if not session.read_only() or session.log.state.last_batch_id is None:
        raise ConfigError(
            f"pipeline {session.pipeline.name} has not published anything yet", hint="calve run FILE", code=NOT_RUN_YET
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


def read(path: Path) -> PositionsFile:
    """Raises ConfigError naming what is wrong with the file."""
    try:
        return PositionsFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: can't be read: {error.strerror}", hint="check the path", code=UNREADABLE_FILE
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        message = f"{path}: not a file of positions: {where}: {first['msg']}"
        raise ConfigError(message, hint="calve positions export FILE writes one", code=POSITIONS_FILE) from None


def begin_with(session: Session, wanted: PositionsFile) -> Offsets:
    """The bootstrap of a pipeline that has never published, with these positions in place of `source.start`.

    Raises ConfigError if it has, or if the positions are not those of its topics.
    """
    session.bind()
    planner = Planner(session)
    if session.log.state.last_publish is not None:
        raise _published(session)
    source = planner.look()
    starts = checked(wanted, source, session.cluster_id)
    if planner.bootstrap(source, starts).verdict is not Verdict.PUBLISH:
        raise _published(session)
    return starts


def checked(wanted: PositionsFile, source: Source, cluster_id: str) -> Offsets:
    """The positions, if each partition has one that it can be read from. Pure. Raises ConfigError."""
    places = [("cluster", wanted.cluster_id, cluster_id)]
    places += [(f"topic {t}", wanted.topic_ids.get(t, i), i) for t, i in sorted(source.topic_ids.items())]
    for what, stored, found in places:
        if stored != found:
            raise ConfigError(
                f"the positions are of {what} with id {stored}, this one has id {found}: the same offsets are other "
                "records there",
                hint="write the offsets of these topics and their ids into the file, if you know them",
                code=OTHER_POSITIONS,
            )
    starts = {TopicPartition(p.topic, p.partition): p.offset for p in wanted.positions}
    unknown, lacking = sorted(starts.keys() - source.ends.keys()), sorted(source.ends.keys() - starts.keys())
    if unknown or lacking:
        lists = {"not in source.topics": unknown, "without a position": lacking}
        said = "; ".join(f"{what}: {', '.join(map(str, ats[:5]))}" for what, ats in lists.items() if ats)
        raise ConfigError(
            f"positions and partitions differ: {said}",
            hint="the file needs one for each partition",
            code=POSITIONS_FILE,
        )
    for at, offset in sorted(starts.items()):
        if not source.starts[at] <= offset <= source.ends[at]:
            raise ConfigError(
                f"{at}: position {offset} is outside of what the topic has, {source.starts[at]} to {source.ends[at]}",
                hint="records below are gone, records above are not there yet; correct the file if that is meant",
                code=POSITIONS_FILE,
            )
    return starts


def _published(session: Session) -> ConfigError:
    return ConfigError(
        f"pipeline {session.pipeline.name} has published already: its positions are its own",
        hint="import into a pipeline of a new name, before its first run",
        code=HAS_PUBLISHED,
    )

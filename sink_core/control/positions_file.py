"""Positions as a file: written out of one pipeline, and what another one begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.offsets import Offsets, TopicPartition


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


def read(path: Path) -> PositionsFile:
    """Raises ConfigError naming what is wrong with the file."""
    try:
        return PositionsFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{path}: can't be read: {error.strerror}", hint="check the path", code=Code.UNREADABLE_FILE
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        message = f"{path}: not a file of positions: {where}: {first['msg']}"
        raise ConfigError(message, hint="calve positions export FILE writes one", code=Code.POSITIONS_FILE) from None


def checked(
    wanted: PositionsFile, *, cluster_id: str, topic_ids: Mapping[str, str], starts: Offsets, ends: Offsets
) -> Offsets:
    """The positions, if each partition has one that it can be read from. `starts` and `ends` are those of the topics as
    they are. Pure. Raises ConfigError.
    """
    places = [("cluster", wanted.cluster_id, cluster_id)]
    places += [(f"topic {t}", wanted.topic_ids.get(t, i), i) for t, i in sorted(topic_ids.items())]
    for what, stored, found in places:
        if stored != found:
            raise ConfigError(
                f"the positions are of {what} with id {stored}, this one has id {found}: the same offsets are other "
                "records there",
                hint="write the offsets of these topics and their ids into the file, if you know them",
                code=Code.OTHER_POSITIONS,
            )
    positions = {TopicPartition(p.topic, p.partition): p.offset for p in wanted.positions}
    unknown, lacking = sorted(positions.keys() - ends.keys()), sorted(ends.keys() - positions.keys())
    if unknown or lacking:
        lists = {"not in source.topics": unknown, "without a position": lacking}
        said = "; ".join(f"{what}: {', '.join(map(str, ats[:5]))}" for what, ats in lists.items() if ats)
        raise ConfigError(
            f"positions and partitions differ: {said}",
            hint="the file needs one for each partition",
            code=Code.POSITIONS_FILE,
        )
    for at, offset in sorted(positions.items()):
        if not starts[at] <= offset <= ends[at]:
            raise ConfigError(
                f"{at}: position {offset} is outside of what the topic has, {starts[at]} to {ends[at]}",
                hint="records below are gone, records above are not there yet; correct the file if that is meant",
                code=Code.POSITIONS_FILE,
            )
    return positions

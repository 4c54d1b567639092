"""Source offsets, seen and set by hand while the pipeline is paused (KIP-875): first what would be, then the move.

It is made in a generation of its own, which fences every slot that may be left, and of a connector every task: see
`moving.py`, which has the crash points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from calve.sink_core.codes import Code
from calve.sink_core.control.slots.leading import Wanted
from calve.sink_core.errors import ConfigError
from calve.sink_core.source.base import Update
from calve.sink_core.source.flat_map import FlatMap
from calve.sink_core.source.moving import Move, migrate, move, overtaken_by, stored_now
from calve.sink_core.source.plane import SourcePlane
from calve.sink_core.source.state import SourceState


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A source partition and its offset in the offsets topic, as they are in JSON; None where it has none. `logged` is
    that of the control log, which is the same unless somebody else has moved one.
    """

    partition: dict[str, Any]
    offset: dict[str, Any] | None
    logged: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What `carry_out` would move, and `waiting`, in the source's words, what is then to be read."""

    moves: tuple[Move, ...]
    waiting: str


def look(plane: SourcePlane) -> tuple[StoredOffset, ...]:
    """Every source partition that has an offset, sorted. Reads only, and no transaction that is open."""
    plane.read_only()
    logged, stored = plane.log.state.offsets, stored_now(plane)
    return tuple(
        StoredOffset(dict(each), _plain(stored.get(each)), _plain(logged.get(each)))
        for each in sorted(stored.keys() | logged.keys())
    )


def read(path: Path) -> Update:
    """The offsets in a file: what `show` prints as JSON, or the list in it; or what Kafka Connect answers when it is
    asked for a connector's offsets. An offset that is null takes the partition's away.

    Raises ConfigError for any other content.
    """
    try:
        found: Any = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="check the path", code=Code.UNREADABLE_FILE) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}", hint=_FILE, code=Code.POSITIONS_FILE) from error
    if isinstance(found, dict):
        document = cast(Mapping[str, Any], found)
        found = document.get("positions", document.get("offsets"))
    wanted = dict[FlatMap, FlatMap | None]()
    for each in cast("list[Any]", found) if isinstance(found, list) else [found]:
        match each:
            case {"partition": dict(partition), "offset": dict() | None as offset}:
                at = FlatMap(cast(Mapping[str, Any], partition))
                wanted[at] = FlatMap(cast(Mapping[str, Any], offset)) if offset is not None else None
            case _:
                raise ConfigError(f"{path}: no source offset: {each!r}", hint=_FILE, code=Code.POSITIONS_FILE)
    return wanted


def prepare(plane: SourcePlane, wanted: Update | None) -> Preview:
    """What `carry_out` would change to store `wanted`; None takes the offset of every partition away.

    What is stored already, and is so by the control log, is left out. Raises ConfigError for a pipeline that is not
    paused or has a batch in progress, and what the source raises for offsets that it can't go on from.
    """
    if plane.read_only():
        plane.bind()
    _check_at_rest(plane)
    stored, logged = stored_now(plane), dict(plane.log.state.offsets)
    if wanted is None:
        wanted = dict.fromkeys(stored.keys() | logged.keys())
    moves = [Move(each, stored.get(each), logged.get(each), after) for each, after in sorted(wanted.items())]
    moves = [each for each in moves if not each.stored == each.after == each.logged]
    after = {**stored, **wanted}
    waiting = plane.source.waiting({each: offset for each, offset in after.items() if offset is not None})
    return Preview(tuple(moves), waiting.what)


def carry_out(plane: SourcePlane, moves: Sequence[Move], *, by: str, reason: str) -> None:
    """Make the moves, in a generation of its own.

    Raises RetriableError if a run or another hand was faster; nothing was changed then.
    """
    if not moves:
        return
    plane.ensure_offsets_topic()
    connect = plane.pipeline.config.connect
    # At least the slot that it writes with: the next generation has to fence it.
    slots = connect.tasks if connect is not None else 1
    led = plane.leader.lead(lambda _state: Wanted(plane.pipeline_id, slots, {}, {}, {}))
    if led is None:
        raise overtaken_by("a run leads")
    why = "nothing was set"
    try:
        _check_paused(plane, led.state)
        logged = dict(led.state.offsets)
        plane.offsets.refresh()
        stored = migrate(plane, led.generation)
        for each in moves:
            found = stored.get(each.partition), logged.get(each.partition)
            if found != (each.stored, each.logged):
                raise overtaken_by(f"{each.partition.json} is at {_text(found[0])} by now")
        now = plane.leader.read_to_end().offsets
        move(plane, led.generation, [Move(m.partition, m.stored, now.get(m.partition), m.after) for m in moves])
        why = f"{len(moves):,} source offsets set by {by}: {reason}"
    finally:
        plane.end(led.generation, why)


_FILE = "give what `calve positions show FILE --json` prints, or its list of partition and offset"
_PAUSE = "calve pause FILE --wait, and calve resume FILE afterwards"


def _check_at_rest(plane: SourcePlane) -> None:
    _check_paused(plane, plane.log.state)
    if outstanding := plane.log.state.outstanding():
        raise ConfigError(
            f"batch {outstanding[0].event.batch_id} is in progress",
            hint="calve pause FILE --wait; with --give-up it ends what dead runs have left",
            code=Code.POSITIONS_AT_WORK,
        )


def _check_paused(plane: SourcePlane, state: SourceState) -> None:
    if state.paused is None:
        raise ConfigError(f"pipeline {plane.pipeline.name} is not paused", hint=_PAUSE, code=Code.POSITIONS_AT_WORK)


def _plain(offset: FlatMap | None) -> dict[str, Any] | None:
    return dict(offset) if offset is not None else None


def _text(offset: FlatMap | None) -> str:
    return offset.json if offset is not None else "no offset"

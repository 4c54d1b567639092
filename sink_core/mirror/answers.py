"""Answers to the findings of a mirror.

Each leads a generation, so that no slot is at work, then moves positions in one transaction with an event that says so.
Crash points: those of a generation, after which nothing has moved, and `resolve.after-effect`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calve.sink_core import findings
from calve.sink_core.control import checks
from calve.sink_core.control.answers import Answer, Answers, Lines, no_answer, overtaken, raised
from calve.sink_core.control.slots.leading import Led
from calve.sink_core.errors import FindingError
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.source import describe_topics, existing_topic_ids, log_starts
from calve.sink_core.mirror import topics
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.rebuild import rebuild
from calve.sink_core.mirror.state import MirrorState
from calve.sink_core.offsets import Offsets, Positions, TopicPartition


def current_findings(plane: MirrorPlane) -> list[FindingError]:
    """The findings that stand; binds the mirror, and fences the slots of a generation that is at work if the positions
    seem to be wrong.

    One on binding or control topic hides all others. Raises what can't be reached.
    """
    found = list(raised(plane.bind))
    if found or plane.log.state.last_batch_id is None:
        return found
    seen: list[topics.Seen] = []
    found += raised(lambda: seen.append(topics.look(plane)))
    remote = topics.recreated(plane.log.state, topics.remote_ids(plane, plane.log.state.upstream_ids))
    if remote is not None:
        # Its positions went with it.
        return [*found, remote.error(str(plane.pipeline.path))]
    if not found:
        found += raised(lambda: _compare(plane, seen[0]))
    return found


def _compare(plane: MirrorPlane, seen: topics.Seen) -> None:
    remote = seen.remote
    known = {r: plane.log.state.partitions[r] for r in remote.values() if r in plane.log.state.partitions}
    positions: Positions = plane.group.positions(known)
    if checks.moved(known, positions) is not None:
        # A slot may have moved them since the log was read.
        led = _led(plane)
        known, positions = {at: led.state.partitions[at] for at in known}, led.positions
        plane.end(led.generation, "looking at positions")
    topics.stop_on(plane, checks.moved(known, positions))
    found = {at: positions[r] for at, r in remote.items() if r in positions}
    topics.stop_on(plane, checks.against_log(found, seen.starts, seen.real_ends))


@dataclass(frozen=True, slots=True)
class _Move:
    """Where positions go, by partition of the remote topic. `upstream_ids` are of source topics that were made anew,
    `remade` is the source topic whose remote topic was, or has to be.
    """

    positions: Offsets
    upstream_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    remade: str | None = None

    def answer(self, plane: MirrorPlane, found: FindingError, choice: str) -> Answer:
        """Moves the positions if the log still has those that the answer was prepared on."""
        before = dict(plane.log.state.partitions)

        def carry_out() -> Lines:
            topic_ids = topics.ensure_one(plane, self.remade) if self.remade else {}
            led = _led(plane)
            if led.state.partitions != before:
                plane.end(led.generation, "overtaken")
                raise overtaken(plane, "records were copied since the answer was prepared")
            set_ = plane.set_positions(
                led,
                self.positions,
                by=plane.made_by or "calve resolve",
                reason=f"{found.finding}: {choice}",
                topic_ids=topic_ids,
                upstream_ids=self.upstream_ids,
            )
            if not set_:
                raise overtaken(plane, "another run leads")
            plane.end(led.generation, f"{found.finding}: {choice}")
            return (f"{len(self.positions):,} positions were set",)

        lines = (
            f"{at}: {_text(before.get(at))} → {offset:,}"
            for at, offset in sorted(self.positions.items())
            if before.get(at) != offset or choice == "restore"
        )
        return Answer(tuple(lines) or ("positions stay as they are",), carry_out)


def restore(plane: MirrorPlane, found: FindingError) -> Answer:
    """Put back the positions that the log has."""
    if found.finding == findings.POSITIONS_BEYOND_END.name:
        why = (
            "the positions are those of the log: the topic has lost its end. Delete and create it, then choose restart"
        )
        raise no_answer(found, "restore", why)
    there = existing_topic_ids(plane.admin, plane.log.state.topic_ids, timeout_s=ADMIN_TIMEOUT_S)
    return _Move(plane.log.state.kept(there)).answer(plane, found, "restore")


def accept_moved(plane: MirrorPlane, found: FindingError) -> Answer:
    """Go on from where somebody moved the positions to; what lies between is never copied."""
    stored = plane.log.state.partitions
    now = plane.group.positions(stored)
    if any(at not in now or now[at].offset < offset for at, offset in stored.items()):
        raise no_answer(found, "accept", "positions were moved back, or are missing: records would be copied twice")
    return _Move({at: position.offset for at, position in now.items()}).answer(plane, found, "accept")


def skip(plane: MirrorPlane, found: FindingError) -> Answer:
    """Go on at the source's log start; what retention deleted before it was copied is gone."""
    remote = plane.pipeline.remote_of(found.subject)
    starts = _log_starts(plane, found.subject)
    stored = plane.log.state.partitions
    below = {
        TopicPartition(remote, at.partition): max(start, stored.get(TopicPartition(remote, at.partition), start))
        for at, start in starts.items()
    }
    return _Move(below).answer(plane, found, "skip")


def restart(plane: MirrorPlane, found: FindingError) -> Answer:
    """Copy the source topic that was made anew from its beginning; what was copied of the old one stays."""
    remote, starts = plane.pipeline.remote_of(found.subject), _log_starts(plane, found.subject)
    ids = {name: topic.topic_id for name, topic in _described(plane, found.subject).items()}
    begins = {TopicPartition(remote, at.partition): start for at, start in starts.items()}
    return _Move(begins, upstream_ids=ids).answer(plane, found, "restart")


def restart_remote(plane: MirrorPlane, found: FindingError) -> Answer:
    """Copy the source topic again, from its log start, into the remote topic that was made anew."""
    source = _source_of(plane, found.subject)
    begins = {TopicPartition(found.subject, at.partition): start for at, start in _log_starts(plane, source).items()}
    return _Move(begins, remade=source).answer(plane, found, "restart")


def accept_remote(plane: MirrorPlane, found: FindingError) -> Answer:
    """Go on with the remote topic that was made anew, behind what was copied to the old one."""
    stay = {at: offset for at, offset in plane.log.state.partitions.items() if at.topic == found.subject}
    return _Move(stay, remade=_source_of(plane, found.subject)).answer(plane, found, "accept")


RESOLVERS: Mapping[tuple[str, str], Callable[[MirrorPlane, FindingError], Answer]] = {
    (finding.name, choice): resolver
    for finding, resolvers in {
        findings.POSITIONS_MISSING: {"restore": restore},
        findings.POSITIONS_CHANGED: {"restore": restore, "accept": accept_moved},
        findings.POSITIONS_BEYOND_END: {"restore": restore},
        findings.RECORDS_LOST: {"skip": skip},
        findings.TOPIC_RECREATED: {"restart": restart},
        findings.CONTROL_TOPIC_RECREATED: {"rebuild": rebuild},
        findings.CONTROL_TOPIC_TRUNCATED: {"rebuild": rebuild},
        findings.FOREIGN_EVENTS: {"rebuild": rebuild},
        findings.REMOTE_TOPIC_RECREATED: {"restart": restart_remote, "accept": accept_remote},
    }.items()
    for choice, resolver in resolvers.items()
}


def answers_of(plane: MirrorPlane) -> Answers[MirrorPlane]:
    """What can be done about the findings of a mirror."""
    return Answers(plane, lambda: current_findings(plane), RESOLVERS)


def _led(plane: MirrorPlane) -> Led[MirrorState]:
    """A generation that copies nothing. Raises RetriableError if another run is faster."""
    led = plane.lead_empty()
    if led is None:
        raise overtaken(plane, "another run leads")
    return led


def _described(plane: MirrorPlane, topic: str) -> Mapping[str, topics.Topic]:
    return describe_topics(plane.source_admin, [topic], timeout_s=ADMIN_TIMEOUT_S)


def _log_starts(plane: MirrorPlane, topic: str) -> Offsets:
    partitions = _described(plane, topic)[topic].all_partitions
    return log_starts(plane.source_admin, partitions, timeout_s=ADMIN_TIMEOUT_S)


def _source_of(plane: MirrorPlane, remote: str) -> str:
    source = plane.pipeline.source_of(remote)
    assert source is not None, remote
    return source


def _text(offset: int | None) -> str:
    return "none" if offset is None else f"{offset:,}"

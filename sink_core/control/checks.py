"""State against world for a whole pipeline: binding, topics, positions, retention. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from calve.sink_core import findings
from calve.sink_core.control.events import PipelineBound
from calve.sink_core.control.state import AnyState
from calve.sink_core.finding import Finding, FindingKind
from calve.sink_core.offsets import Offsets, Positions
from calve.sink_core.rules import ALL, Rules


def binding(
    bound: PipelineBound, mine: PipelineBound, *, elsewhere: FindingKind, published: bool = True
) -> Finding | None:
    """Whether this host's catalog, cluster and control topic are those the pipeline was bound to at first use.

    `elsewhere` is what another fingerprint is called, for a sink that of another catalog. Until something was
    `published` it does not count: a sink has no table by then, and the bootstrap binds it anew.
    """
    name = mine.pipeline
    pairs = (
        (findings.RENAMED_PIPELINE, (bound.pipeline, bound.deployment), (mine.pipeline, mine.deployment)),
        (elsewhere, bound.fingerprint, mine.fingerprint),
        (findings.OTHER_CLUSTER, bound.cluster_id, mine.cluster_id),
        (findings.CONTROL_TOPIC_RECREATED, bound.control_topic_id, mine.control_topic_id),
    )
    for kind, stored, found in pairs:
        if stored != found and (published or kind is not elsewhere):
            return kind.of(name, stored=str(stored), found=str(found))
    return None


def control_topic_recreated(control_topic: str, stored: str, found: str) -> Finding:
    """The topic was deleted and made again while a process used it."""
    stored = f"topic id {stored}, opened before"
    return findings.CONTROL_TOPIC_RECREATED.of(control_topic, stored=stored, found=f"topic id {found}")


def truncated(state: AnyState, control_topic: str) -> Finding | None:
    """Events are missing at the start of the log and no checkpoint stands for them, or more than a trim took."""
    if state.log_start == 0:
        return None
    if state.checkpoint is None or state.checkpoint.event.up_to_offset < state.log_start:
        stored, found = "events from offset 0", f"log start {state.log_start}, no checkpoint"
    elif state.deletable < state.log_start:
        stored, found = f"events from offset {state.deletable}", f"log start {state.log_start}"
    else:
        return None
    return findings.CONTROL_TOPIC_TRUNCATED.of(control_topic, stored=stored, found=found)


def foreign_events(state: AnyState, control_topic: str) -> Finding | None:
    """Another pipeline has written to the control topic."""
    if state.foreign is None or state.bound is None:
        return None
    event = state.foreign.event
    stored = f"events of pipeline {state.bound.pipeline_id}"
    found = f"{event.event_type} of pipeline {event.pipeline_id or 'unknown'} at control offset {state.foreign.offset}"
    return findings.FOREIGN_EVENTS.of(control_topic, stored=stored, found=found)


def foreign_message(offset: int, why: str, control_topic: str) -> Finding:
    """Somebody has written to the control topic what is no event; `why` it can't be read."""
    found = f"at control offset {offset}: {why}"
    return findings.FOREIGN_EVENTS.of(control_topic, stored="events of Calve", found=found)


def other_kind(control_topic: str, writer: str, reader: str, pipeline_file: str) -> Finding:
    """A pipeline of another kind has the name: `writer`, which has written to the control topic, and `reader`."""
    return findings.OTHER_KIND.of(
        control_topic, stored=f"events of the {writer} of that name", found=f"the {reader} of {pipeline_file}"
    )


def lost_log(positions: Positions, state: AnyState, control_topic: str) -> Finding | None:
    """The group has positions that a publish put there, and the log knows of no publish."""
    ids = sorted({p.batch_id for p in positions.values() if p.batch_id})
    if state.last_publish is not None or not ids:
        return None
    stored = f"positions of batch {', '.join(ids[:3])}"
    return findings.CONTROL_TOPIC_RECREATED.of(control_topic, stored=stored, found="no DATA_COMPLETE in the log")


def topic_recreated(topic_ids: Mapping[str, str], state: AnyState) -> Finding | None:
    """A source topic has another UUID than at the last publish. Comes before "missing": offsets go with the topic."""
    return topic_changed(state.last_publish.topic_ids if state.last_publish else {}, topic_ids, state.rules)


def topic_changed(stored: Mapping[str, str], found: Mapping[str, str], rules: Rules = ALL) -> Finding | None:
    """Topics that have another UUID than they had."""
    for topic, topic_id in sorted(found.items()):
        if stored.get(topic, topic_id) != topic_id and rules.topic_ids_are_compared:
            was = f"topic id {stored[topic]}"
            return findings.TOPIC_RECREATED.of(topic, stored=was, found=f"topic id {topic_id}")
    return None


def positions(found: Positions, topics: Mapping[str, str], state: AnyState) -> Finding | None:
    """The positions against those of the last publish, for the topics in `topics`, by name with their UUIDs.

    A topic that was taken out of the file and put back must still have its position, unless it was created anew since.
    Only a finding if both were unchanged while they were read (positions, log to its end, positions again).
    """
    expected = state.positions()
    if expected is None or not state.rules.positions_are_held_against_log:
        return None
    expected = {at: offset for at, offset in expected.items() if at.topic in topics}
    missing = sorted((expected.keys() | state.kept(topics)) - found.keys())
    if missing:
        first = missing[0]
        stored = f"{first} at {state.partitions[first]} (last DATA_COMPLETE)"
        lacking = f"no position for {len(missing)} partitions"
        return findings.POSITIONS_MISSING.of(first.topic, stored=stored, found=lacking)
    back = any(found[at].offset < offset for at, offset in expected.items())
    for at, offset in sorted(expected.items()):
        if found[at].offset != offset:
            stored, now = f"{at} at {offset} (last DATA_COMPLETE)", f"position {found[at].offset}"
            only = ("restore",) if back else ()
            return findings.POSITIONS_CHANGED.of(at.topic, stored=stored, found=now, only=only)
    metadata = sorted({found[at].metadata for at in expected})
    if len(metadata) > 1 or "" in metadata:
        return findings.POSITIONS_CHANGED.of(
            min(expected).topic,
            stored="one batch id in all positions",
            found=f"batch ids {', '.join(each or 'none' for each in metadata)}",
            only=("restore",),
        )
    return None


def moved(expected: Offsets, found: Positions) -> Finding | None:
    """The positions of slots against those of the log, read after a fence: nothing can have moved them since."""
    missing = sorted(expected.keys() - found.keys())
    if missing:
        first, lacking = missing[0], f"no position for {len(missing)} partitions"
        return findings.POSITIONS_MISSING.of(first.topic, stored=f"{first} at {expected[first]}", found=lacking)
    changed = [at for at, offset in sorted(expected.items()) if found[at].offset != offset]
    if changed:
        first, back = changed[0], any(found[at].offset < expected[at] for at in changed)
        stored, now = f"{first} at {expected[first]}", f"position {found[first].offset}"
        return findings.POSITIONS_CHANGED.of(first.topic, stored=stored, found=now, only=("restore",) if back else ())
    return None


def against_log(found: Positions, log_starts: Offsets, ends: Offsets) -> Finding | None:
    """Positions below the log start (records lost to retention) or beyond the end (the log was truncated)."""
    for at, position in sorted(found.items()):
        if at not in ends:
            continue
        stored = f"{at} at {position.offset}"
        if position.offset > ends[at]:
            return findings.POSITIONS_BEYOND_END.of(at.topic, stored=stored, found=f"end offset {ends[at]}")
        if position.offset < log_starts[at]:
            gone = f"log start {log_starts[at]}: {log_starts[at] - position.offset} offsets are gone"
            return findings.RECORDS_LOST.of(at.topic, stored=stored, found=gone)
    return None

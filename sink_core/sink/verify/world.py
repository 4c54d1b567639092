"""What the proof looks at, loaded in the order that makes it comparable: tables, positions, log to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import TopicPartition as KafkaTopicPartition

from calve.sink_core.codes import Code
from calve.sink_core.control import checks
from calve.sink_core.control.events import Event
from calve.sink_core.control.log import PARTITION, READ_TIMEOUT_S, Trimmed, is_out_of_range
from calve.sink_core.errors import ConfigError, FindingError, Unreachable
from calve.sink_core.finding import Finding
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import PARTITION_EOF
from calve.sink_core.kafka.failures import classify
from calve.sink_core.kafka.source import Topic, describe_topics, end_offsets, log_starts
from calve.sink_core.offsets import after
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.verify.history import History
from calve.sink_core.tables.format.proven import Proven
from calve.sink_core.tables.history.findings import AncestryCut, compare
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from calve.sink_core.tables.proof import Evidence
from calve.sink_core.timing import Deadline

# A dead publisher's transaction ends after a minute; the broker looks for such every ten seconds.
_SETTLE_S = 120.0
_SETTLE_TRIES = 5


@dataclass(frozen=True, slots=True)
class World:
    """`tables` are older than `state`: what they hold is in it, and what it holds may be new to them."""

    tables: dict[str, Proven]
    state: CommitState
    history: History


def look(session: Session, evidence: Evidence) -> World:
    """Load everything; a finding of the pipeline or of a table becomes a violation."""
    ran = session.read_only()
    if not ran:
        evidence.skipped(session.log.topic, "there is no control topic: the pipeline has never run here")
    tables = dict[str, Proven]()
    for name in table_names(session):
        evidence.progress(f"loading {name}")
        if (loaded := _load(session, name, evidence, ran=ran)) is not None:
            tables[name] = loaded
    history = History(session.log.topic)
    if ran:
        _check_positions(session, evidence)
        history = _read_history(session, evidence)
    return World(tables, session.log.state, history)


def table_names(session: Session) -> list[str]:
    """The pipeline's tables, its own two last, then those that only the log still speaks of."""
    return list(dict.fromkeys([*session.pipeline.table_names, *session.log.state.tables]))


def _load(session: Session, name: str, evidence: Evidence, *, ran: bool) -> Proven | None:
    """Compared as every commit does, with the log read at least as far as the table has taken it in."""
    lake = session.lake_of(name)
    looked = lake.look(name, compare=ran)
    if looked.finding is not None:
        _violation(looked.finding, evidence)
    if looked.table is None:
        return None
    proven = lake.proven(looked.table)
    if proven is None:
        kind = session.pipeline.format_of(name)
        evidence.skipped(name, f"its files and rows: tables of format {kind} are compared with the log only")
    elif not ran:
        found = compare(proven.view, session.log.state, session.identity)
        _find(session, found.finding if isinstance(found, AncestryCut) else found, evidence)
    return proven


def _find(session: Session, finding: Finding | None, evidence: Evidence) -> None:
    if finding is not None:
        _violation(finding.error(str(session.pipeline.path)), evidence)


def _violation(error: FindingError, evidence: Evidence) -> None:
    evidence.violation(error.finding, error.subject, f"stored {error.stored}, found {error.found}; {error.hint}")


def _check_positions(session: Session, evidence: Evidence) -> None:
    """Topics and positions against the log; positions are a finding only if they stay unchanged when read again."""
    topics = _topics(session, evidence)
    ids = {name: topic.topic_id for name, topic in topics.items()}
    partitions = [at for topic in topics.values() for at in topic.all_partitions]

    def read() -> tuple[object, Finding | None]:
        found = session.group.positions(partitions, timeout_s=_SETTLE_S)
        state = session.log.refresh_to_end(timeout_s=_SETTLE_S)
        lost = checks.lost_log(found, state, session.log.topic)
        return found, lost or checks.topic_recreated(ids, state) or checks.positions(found, ids, state)

    _find(session, unchanged(read), evidence)
    _find(session, checks.truncated(session.log.state, session.log.topic), evidence)
    found = session.group.positions(partitions, timeout_s=_SETTLE_S)
    ends = end_offsets(session.admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
    starts = log_starts(session.admin, partitions, timeout_s=ADMIN_TIMEOUT_S)
    _find(session, checks.against_log(found, starts, ends), evidence)


def unchanged(read: Callable[[], tuple[object, Finding | None]]) -> Finding | None:
    """The finding of `read`, which returns what it looked at as well, once both stay the same when read again.

    A publish between the two reads of one look would be taken for somebody else's change.
    """
    before, finding = read()
    for _ in range(_SETTLE_TRIES):
        if finding is None:
            return None
        found, finding = read()
        if found == before:
            return finding
        before = found
    return finding


def _topics(session: Session, evidence: Evidence) -> dict[str, Topic]:
    names = session.source_topics()
    for topic, why in session.left_out().items():
        evidence.skipped(topic, why)
    try:
        return describe_topics(session.admin, names, timeout_s=ADMIN_TIMEOUT_S)
    except ConfigError as error:
        evidence.skipped(", ".join(names), f"the source topics and their positions: {error.message}")
        return {}


def _read_history(session: Session, evidence: Evidence) -> History:
    """The log read for the proof; once more from the start, with the fold, if it was trimmed meanwhile."""
    while True:
        found = Evidence()
        try:
            history = _history(session, evidence.progress, found)
        except Trimmed:
            session.log.close()
            session.log.refresh_to_end(timeout_s=_SETTLE_S)
        else:
            evidence.include(found)
            return history


def _history(session: Session, progress: Callable[[str], None], evidence: Evidence) -> History:
    state, settings = session.log.state, session.pipeline.kafka.properties
    progress(f"reading {state.next_offset - state.log_start} control events")
    base = state.checkpoint.event if state.log_start > 0 and state.checkpoint else None
    history = History(session.log.topic, base)
    for offset, event in read_events(settings, session.log.topic, state.log_start, state.next_offset):
        history.apply(offset, event, evidence)
    history.finish(evidence)
    return history


def read_events(settings: clients.Settings, topic: str, start: int, end: int) -> Iterator[tuple[int, Event]]:
    """The committed events `[start, end)` of a control topic with their offsets, without the fold that commits.

    Raises Unreachable if nothing comes for a minute, ProtocolError for what is not an event, Trimmed if events were
    deleted before they were read.
    """
    with closing(clients.reader(settings, group=f"{topic}.reader")) as consumer:
        consumer.assign([KafkaTopicPartition(topic, PARTITION, start)])
        at, deadline = start, Deadline.after(READ_TIMEOUT_S)
        while at < end:
            if deadline.passed:
                raise Unreachable(
                    f"{topic}: read up to {at}, not to {end}", hint="is the broker reachable?", code=Code.NO_ANSWER
                )
            for message in clients.receive(consumer, 500, 0.2):
                offset, error = message.offset() or 0, message.error()
                deadline = Deadline.after(READ_TIMEOUT_S)
                if error is None:
                    at = after(offset)
                    if offset < end:
                        yield offset, SINK.decode(message.value() or b"")
                elif error.code() == PARTITION_EOF:
                    at = max(at, offset)
                elif is_out_of_range(error):
                    raise Trimmed
                elif not error.retriable():
                    raise classify(error, f"reading {topic}")

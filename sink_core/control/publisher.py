"""The fenced publisher: everything that moves an offset of the source group goes through one transactional id.

Crash points of `publish`, and what the next run finds (docs/design.md has the whole table):

    publish.after-fence     nothing moved; the plan's files are orphans; the next run plans the same offsets again
    publish.after-begin     as above
    publish.after-letters   an open transaction that nobody can read; the next fence aborts it
    publish.after-events    as above
    publish.after-offsets   as above
    publish.after-commit    published; the next run's commit takes it in

Range jobs go the same way, with their token in place of positions. So do keeping alive and giving up, which are there
after the commit or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from calve.sink_core.codes import Code
from calve.sink_core.control.decision import Decision, Verdict
from calve.sink_core.control.events import BatchAbandoned, Event
from calve.sink_core.control.group import SourceGroup, to_kafka
from calve.sink_core.control.letters import NONE, Letters
from calve.sink_core.control.log import PARTITION, ControlLog, headers
from calve.sink_core.control.state import AnyState
from calve.sink_core.errors import CalveError, Fenced, RetriableError, UnknownOutcome
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.failures import classify
from calve.sink_core.offsets import NO_TOKEN, Position, Positions, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.timing import back_off

ATTEMPTS = 6
"""Two live publishers fence each other at most this often before one gives up."""

TRANSACTION_S = 60.0

T = TypeVar("T")
S = TypeVar("S", bound=AnyState)
Read = tuple[dict[TopicPartition, Position], S]


@dataclass(frozen=True, slots=True)
class GivenUp(Generic[S]):
    """What was read after the fence, and the batches that can't be published any more.

    `positions` are as read, before they got their new mark; `state` is the log to the end seen after the fence.
    """

    positions: Positions
    state: S
    batch_ids: tuple[str, ...]


class Publisher(Generic[S]):
    """Publishes for one pipeline, in four steps (docs/design.md, Publish).

    1. fence: `init_transactions` with the pipeline's one transactional id
    2. read the group, then the control log to the end seen after that
    3. decide
    4. one transaction: events and offsets
    """

    def __init__(
        self,
        settings: clients.Settings,
        *,
        transactional_id: str,
        group: SourceGroup,
        log: ControlLog[S],
        rules: Rules = ALL,
    ) -> None:
        self._settings = settings
        self._transactional_id = transactional_id
        self._group = group
        self._log = log
        self._rules = rules
        self._connecting: Producer | None = None

    def connect(self) -> None:
        """Begin to connect for the next publish; does not wait. Nobody is fenced by it, and it may be left at that."""
        self._connecting = self._producer({})

    def publish(
        self,
        decide: Callable[[Positions, S], Decision],
        events: Sequence[Event],
        positions: Positions,
        letters: Letters = NONE,
    ) -> Decision:
        """Publish `events`, `positions` and `letters` together if `decide` says so, on what is read after the fence.

        Raises Fenced after too many fences by others, UnknownOutcome if no try could find out what became of the last.
        """

        def step(producer: Producer, read: Read[S]) -> Decision:
            decision = decide(*read)
            if decision.verdict is Verdict.PUBLISH:
                self._transaction(producer, events, positions, letters)
            return decision

        return self._fenced(step, positions, letters.settings if letters.number else {})

    def keep_alive(self) -> int:
        """Re-commit every offset with its metadata exactly as read, so that the broker does not expire the group.

        Every partition that was ever published, those of topics no longer read and the token of range jobs included.
        Returns the number of offsets; nothing is written if the group has none.
        """

        def step(producer: Producer, read: Read[S]) -> int:
            positions, _state = read
            if positions:
                self._transaction(producer, [], positions)
            return len(positions)

        another_id = {} if self._rules.one_transactional_id else {"transactional.id": f"{self._transactional_id}.alive"}
        return self._fenced(step, settings=another_id, fence_first=self._rules.keep_alive_fences_first)

    def give_up(self) -> GivenUp[S]:
        """Make every plan that was made before stale: re-commit the offsets with a fresh mark in their metadata.

        One `BATCH_ABANDONED` for each batch in progress, for people, in the same transaction. The token of range jobs
        gets the mark as well, and is put there if none was: where the positions are gone it is all that can have one.
        Nothing is written for a pipeline that has never published. What is returned was read after the fence: a batch
        that is not in its `state` is never published.
        """
        abandoned: dict[str, None] = {}

        def step(producer: Producer, read: Read[S]) -> GivenUp[S]:
            positions, state = read
            # Of a try whose outcome was unknown.
            landed = [batch_id for batch_id in abandoned if batch_id in state.abandoned]
            outstanding = [logged.event for logged in state.outstanding()]
            if state.last_publish is not None or positions.keys() - {self.token}:
                mark = str(uuid.uuid4())
                token = positions.get(self.token, NO_TOKEN)
                marking = self._rules.giving_up_leaves_a_mark
                marked = {at: p.given_up(mark) if marking else p for at, p in positions.items()}
                marked[self.token] = token.marked(mark)
                abandoned.update(dict.fromkeys(event.batch_id for event in outstanding))
                events = [BatchAbandoned(pipeline_id=e.pipeline_id, batch_id=e.batch_id) for e in outstanding]
                self._transaction(producer, events, marked)
            return GivenUp(positions, state, (*landed, *(event.batch_id for event in outstanding)))

        return self._fenced(step)

    @property
    def token(self) -> TopicPartition:
        """Where the token of range jobs is kept in the group."""
        return TopicPartition(self._log.topic, PARTITION)

    def fence_and_read(self, partitions: Iterable[TopicPartition] | None = None) -> Read[S]:
        """Fence, then read: what is returned can't be changed any more by a publisher that started earlier.

        Without `partitions` the positions of all that were ever published, and the token.
        """
        return self._fenced(lambda _producer, read: read, partitions)

    def fence(self) -> None:
        """End what an earlier publisher has left open. Reads nothing."""
        self._fence(self._producer({}))

    def _fence(self, producer: Producer) -> None:
        with _translated("fencing earlier publishers"):
            clients.await_broker(producer, self._log.topic, TRANSACTION_S)
            producer.init_transactions(TRANSACTION_S)

    def _fenced(
        self,
        step: Callable[[Producer, Read[S]], T],
        partitions: Iterable[TopicPartition] | None = None,
        settings: clients.Settings | None = None,
        *,
        fence_first: bool = True,
    ) -> T:
        """Steps 1 and 2, then `step`; from the start again when fenced or when the outcome is unknown.

        Without `partitions` all that were ever published, as the log has them after the fence, and the token.
        `settings` are the producer's beside its own.
        """
        last: CalveError | None = None
        for attempt in range(ATTEMPTS):
            try:
                producer = self._producer(settings or {})
                read_early = None if fence_first else self._read(partitions)
                self._fence(producer)
                reach("publish.after-fence")
                return step(producer, read_early or self._read(partitions))
            except (Fenced, UnknownOutcome) as error:
                last = error
                back_off(attempt, first_s=0.2, most_s=6.4)
        assert last is not None
        raise last

    def _read(self, partitions: Iterable[TopicPartition] | None) -> Read[S]:
        wanted = [*self._log.refresh_to_end().partitions, self.token] if partitions is None else partitions
        positions = self._group.positions(wanted)
        return positions, self._log.refresh_to_end()

    def _producer(self, settings: clients.Settings) -> Producer:
        """One that has fenced nobody yet; the one that is connecting if no other settings are wanted."""
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not settings:
            return connecting
        return clients.transactional_producer(self._settings, self._transactional_id, **settings)

    def _transaction(
        self, producer: Producer, events: Sequence[Event], positions: Positions, letters: Letters = NONE
    ) -> None:
        """Step 4. On an error the producer is dropped, not reused: the next try fences it and looks.

        Letters, which may be many, go before the first event: from there on readers of the log wait for the end.
        """
        with _translated("publishing"):
            producer.begin_transaction()
            reach("publish.after-begin")
            letters.send(producer, TRANSACTION_S)
            reach("publish.after-letters")
            for event in events:
                value = self._log.fold.encode(event)
                producer.produce(self._log.topic, value, partition=PARTITION, headers=headers(event))
            if producer.flush(TRANSACTION_S) > 0:
                raise UnknownOutcome(
                    f"the events for {self._log.topic} were not acknowledged in {TRANSACTION_S:.0f} s",
                    code=Code.NOT_ACKNOWLEDGED,
                )
            reach("publish.after-events")
            producer.send_offsets_to_transaction(to_kafka(positions), self._group.metadata(), TRANSACTION_S)
            reach("publish.after-offsets")
            producer.commit_transaction(TRANSACTION_S)
        reach("publish.after-commit")


@contextmanager
def _translated(doing: str) -> Generator[None]:
    """Fenced, unknown or terminal: the three ways a call on a transactional producer can fail."""
    try:
        yield
    except KafkaException as raised:
        error = classify(raised, doing)
        cause: KafkaError = raised.args[0]
        if (isinstance(error, RetriableError) and not isinstance(error, Fenced)) or cause.txn_requires_abort():
            raise UnknownOutcome(error.message, hint=error.hint, code=error.code) from raised
        raise error from raised

"""A task's side of slots: one producer of one generation, whose transactions carry records, positions and an event.

    fence → look whether the generation still leads, and where it stands → transaction after transaction

Crash points of a task, and what the next run finds (docs/design.md has the whole table):

    slot.before-init         nothing of this slot; the next generation plans its work again
    slot.after-init          as above
    slot.after-check         as above
    transaction.after-begin  as above
    transaction.mid-produce  records that nobody sees; the next fence aborts
    transaction.after-event  as above; readers of the control topic wait until then
    transaction.after-offsets as above, and positions are pending until then
    transaction.after-commit records, positions and event are there; the next generation goes on behind them
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer

from calve.sink_core.codes import Code
from calve.sink_core.control.group import SourceGroup, to_kafka
from calve.sink_core.control.log import PARTITION, headers
from calve.sink_core.control.slots.events import SlotCommitted
from calve.sink_core.control.status import Blocker
from calve.sink_core.errors import CalveError, Fenced, RetriableError, UnknownOutcome
from calve.sink_core.failpoints import reach
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.compat import STATE
from calve.sink_core.kafka.failures import classify
from calve.sink_core.offsets import Offsets, Position, TopicPartition
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tasks import Size
from calve.sink_core.timing import Deadline

TRANSACTION_S = clients.TRANSACTION_TIMEOUT_MS / 1000
"""After this the broker aborts a transaction by itself: pieces stay far below it."""

BATCH_BYTES = 1_000_000

BULK: Mapping[str, object] = {
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "linger.ms": 50,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    # The client compares the record as it is with this, the broker the compressed batch with the topic's own.
    "message.max.bytes": 1_000_000_000,
}
"""Settings of a producer that sends as much as it can."""

_RETRY_S = 0.1
_LOOK_S = 0.5


class Overtaken(Exception):
    """Another generation leads: the work of this task is somebody else's, or was done."""


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """Where a slot writes, and in which generation. Picklable; `settings` have their references unresolved.

    `token` is where the group says which generation leads. `producer` are librdkafka's settings beside Calve's own.
    """

    settings: clients.Settings = field(repr=False)
    transactional_id: str
    group: str
    token: TopicPartition
    control_topic: str
    generation: str
    producer: dict[str, object] = field(default_factory=dict[str, object])
    rules: Rules = ALL


class Refused(RetriableError):
    """The target has refused a record, or the transaction for another reason: the next fence aborts it, nothing of it
    counts.
    """


@dataclass(frozen=True, slots=True)
class SlotResult:
    """How a task ended; what it did is in the control log. `overtaken` says by what, empty if it came to its end.

    `size` is what its transactions moved, `blockers` what kept it from moving the rest of a part, by part.
    """

    overtaken: str = ""
    size: Size = field(default_factory=Size)
    blockers: Mapping[str, Blocker] = field(default_factory=dict[str, Blocker])


def unexplained(results: Iterable[SlotResult]) -> CalveError | None:
    """A slot that says it was overtaken by a generation that nobody has led: the broker has let go of its producer."""
    said = next((result.overtaken for result in results if result.overtaken), "")
    return RetriableError(f"a slot lost its producer: {said}", hint="run again") if said else None


class Slot:
    """Use as a context manager, in one thread. Raises Overtaken, from every method, once another generation leads."""

    def __init__(self, spec: SlotSpec) -> None:
        self._spec = spec
        self._group = SourceGroup(spec.settings, spec.group, spec.rules)
        self._producer = clients.transactional_producer(spec.settings, spec.transactional_id, **spec.producer)
        self._open = False
        self.size = Size()
        """What its transactions moved so far."""

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._open and kind is not None:
            # A producer that can't abort leaves it to the next fence.
            with suppress(CalveError, Overtaken):
                self.abort()
        # Records that were never acknowledged hold what would be told of it, and that this producer.
        self._producer.purge()
        with suppress(KafkaException, SystemError):
            self._producer.poll(0)
        self._group.close()

    @property
    def spec(self) -> SlotSpec:
        return self._spec

    @property
    def generation(self) -> str:
        return self._spec.generation

    @property
    def producer(self) -> Producer:
        """For the records of an open transaction."""
        return self._producer

    def check(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Fence whoever had this slot before, then read: the positions of `partitions`, if the generation still leads.

        In this order: whatever an earlier holder left open is decided before anything is read, and a task that was held
        up until after a later generation's fence sees that generation's token.
        """
        reach("slot.before-init")
        wanted = [self._spec.token, *partitions]
        early = None if self._spec.rules.slot_fences_first else self._group.positions(wanted)
        with self.reported("fencing the former holder of the slot"):
            clients.await_broker(self._producer, self._spec.control_topic, TRANSACTION_S)
            self._producer.init_transactions(TRANSACTION_S)
        reach("slot.after-init")
        positions = early or self._group.positions(wanted)
        token = positions.pop(self._spec.token, None)
        leads = token is not None and token.metadata == self._spec.generation
        if not leads and self._spec.rules.slot_compares_the_token:
            raise Overtaken(f"the token names {token.metadata if token else 'no generation'}")
        reach("slot.after-check")
        return positions

    def begin(self) -> None:
        """Open a transaction: readers of what it writes to wait for its end from the first record on."""
        with self.reported("beginning a transaction"):
            self._producer.begin_transaction()
        self._open = True
        reach("transaction.after-begin")

    def flush(self) -> None:
        """Wait until every record of the open transaction was acknowledged. Raises Refused once one was refused."""
        deadline = Deadline.after(TRANSACTION_S)
        with self.reported("sending records"):
            while (left := self._producer.flush(min(_LOOK_S, max(0.0, deadline.left_s)))) > 0:
                # Behind one that was refused, the client holds back all others until they time out.
                self._look()
                if deadline.passed:
                    raise UnknownOutcome(
                        f"{left:,} records were not acknowledged in {TRANSACTION_S:.0f} s",
                        hint="lower transaction.max_bytes if the target can't take so much in a minute",
                        code=Code.NOT_ACKNOWLEDGED,
                    )
            self._look()

    def commit(self, event: SlotCommitted, value: bytes, positions: Offsets) -> None:
        """End the open transaction with `event`, whose message is `value`, and the next offsets of what it moved.

        Raises Refused if a record was refused, and then nothing is there; UnknownOutcome if the broker does not say
        what became of it.
        """
        spec, producer = self._spec, self._producer
        with self.reported("ending a transaction"):
            producer.produce(spec.control_topic, value, partition=PARTITION, headers=headers(event))
            self.flush()
            reach("transaction.after-event")
            moved = {at: Position(offset, spec.generation) for at, offset in positions.items()}
            producer.send_offsets_to_transaction(to_kafka(moved), self._group.metadata(), TRANSACTION_S)
            reach("transaction.after-offsets")
        self._commit()
        self._open = False
        self.size += event.size
        reach("transaction.after-commit")

    def abort(self) -> None:
        """Take back the open transaction, as far as that can be done."""
        self._open = False
        with self.reported("aborting a transaction"):
            self._producer.abort_transaction(TRANSACTION_S)

    def _commit(self) -> None:
        """A commit without an answer is in doubt: it is only called again, as anything else could undo what landed."""
        deadline = Deadline.after(TRANSACTION_S)
        while True:
            try:
                self._producer.commit_transaction(max(1.0, deadline.left_s))
            except KafkaException as raised:
                error: Any = raised.args[0]
                if error.txn_requires_abort() or error.fatal() or not error.retriable():
                    raise self._meaning(raised, "committing a transaction") from raised
                if deadline.passed:
                    # Not aborted: who comes next learns what became of it by its fence.
                    self._open = False
                    raise UnknownOutcome(
                        f"no answer to a commit for {TRANSACTION_S:.0f} s", code=Code.OPEN_TRANSACTION
                    ) from raised
                time.sleep(_RETRY_S)
            else:
                return

    @contextmanager
    def reported(self, doing: str) -> Generator[None]:
        """Raise what an error of the producer means: Overtaken, if another took the slot."""
        try:
            yield
        except KafkaException as raised:
            raise self._meaning(raised, doing) from raised
        except SystemError as raised:
            # What a fatal error becomes where the client has callbacks to call after it.
            if not isinstance(raised.__cause__, KafkaException):
                raise
            raise self._meaning(raised.__cause__, doing) from raised

    def _meaning(self, raised: KafkaException, doing: str) -> Exception:
        """A producer whose id somebody else took says so once, and answers whatever it is asked next with a fatal."""
        if self._open and raised.args[0].code() == STATE:
            try:
                self._look()
            except KafkaException as why:
                raised = why
        error = classify(raised, doing)
        if isinstance(error, Fenced):
            self._open = False
            return Overtaken(error.message)
        if raised.args[0].txn_requires_abort():
            # Behind a record that was refused the client's own abort may take a minute: it is left to the next fence.
            self._open = False
            return Refused(error.message, hint=error.hint, code=error.code)
        return error

    def _look(self) -> None:
        """Raise KafkaException for an open transaction that can only be aborted.

        Beginning another is the one question that always tells: within one that is well it is a misuse without effect.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as raised:
            if raised.args[0].code() != STATE:
                raise

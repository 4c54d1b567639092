from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import LedgerRow
from calve.sink_core.sink.verify.batches import compare, expected_rows
from calve.sink_core.sink.verify.history import History
from calve.sink_core.tables.log.events import DataComplete, DataWritten
from calve.sink_core.tables.proof import Evidence
from tests.codes import names
from tests.unit.sink.verify.hand_made import (
    AT,
    DATA,
    DEAD,
    INTERNAL,
    LEDGER,
    bootstrapped,
    fold,
    history,
    kinds,
    publish,
    row,
)
from tests.unit.tables.log.build import checkpoint

FIRST, SECOND = [row("b1", 0, 10, dead=1)], [row("b2", 10, 30)]


def compared(events: Sequence[DataWritten | DataComplete], rows: Sequence[LedgerRow]) -> Evidence:
    evidence = Evidence()
    compare(history(events), fold(rows), INTERNAL, evidence)
    return evidence


def test_a_log_and_its_ledger_agree() -> None:
    assert kinds(compared(bootstrapped(("b1", FIRST), ("b2", SECOND)), [*FIRST, *SECOND])) == []


def test_a_new_partition_may_come_without_a_record() -> None:
    new = TopicPartition("flights", 4)
    rows = [row("b1", 0, 10), row("b1", 7, 7, at=new)]
    assert kinds(compared(bootstrapped(("b1", rows)), rows)) == []
    assert kinds(compared(bootstrapped(("b1", rows)), rows[:1])) == ["batch-rows"]


def test_a_batch_without_ledger_rows_and_one_that_was_never_published_are_named() -> None:
    evidence = compared(bootstrapped(("b1", FIRST), ("b2", SECOND)), [*FIRST, row("b9", 30, 31)])
    assert [(v.kind, v.batches) for v in evidence.violations] == [
        ("batch-not-in-ledger", ("b2",)),
        ("batch-not-in-log", ("b9",)),
    ]


def test_end_offsets_other_than_published_are_named() -> None:
    moved = [row("b1", 0, 5), row("b1", 5, 10, at=AT._replace(partition=2))]
    published = [row("b1", 0, 10), row("b1", 5, 10, at=AT._replace(partition=2))]
    assert "ledger-positions" in kinds(compared(bootstrapped(("b0b", published), ("b1", published)), moved))


def test_totals_other_than_published_are_named_with_both_values() -> None:
    events = bootstrapped(("b1", FIRST))
    events[-1] = replace(events[-1], totals={**events[-1].totals, "value_bytes": 7})
    (violation,) = compared(events, FIRST).violations
    assert violation.kind == "ledger-totals"
    names(violation.message, "value_bytes", 7, 100)


def test_rows_published_for_a_table_must_be_those_of_the_ledger() -> None:
    events = bootstrapped(("b1", FIRST))
    short = [e for e in events if not (isinstance(e, DataWritten) and e.table == DEAD)]
    (violation,) = compared(short, FIRST).violations
    assert (violation.kind, violation.subject) == ("batch-rows", DEAD)
    names(violation.message, 0, 1)


def test_a_table_missing_in_written_is_noticed() -> None:
    rows = [row("b1", 0, 10, written={})]
    events = publish("b1", "b0", [row("b1", 0, 10)])
    (violation,) = compared([*bootstrapped(), *events], rows).violations
    assert (violation.kind, violation.subject) == ("batch-rows", DATA)


@pytest.mark.parametrize(
    ("published", "found"), [(2, []), (3, ["batch-not-in-ledger"]), (1, ["batch-not-in-log"])], ids=str
)
def test_of_batches_whose_events_were_trimmed_the_number_is_compared(published: int, found: list[str]) -> None:
    """The log begins with b3, which b2 and b1 came before."""
    base = checkpoint(9, last_complete_batch_id="b2", positions={AT.topic: (-1, -1, -1, 30)}, batches=published)
    third, evidence = [row("b3", 30, 40)], Evidence()
    seen = History("control", base)
    for offset, event in enumerate(publish("b3", "b2", third), 10):
        seen.apply(offset, event, evidence)
    compare(seen, fold([*FIRST, *SECOND, *third]), INTERNAL, evidence)
    assert kinds(evidence) == found


def test_expected_rows_come_from_the_log_and_for_trimmed_batches_from_the_ledger() -> None:
    seen, ledger = history(bootstrapped(("b2", SECOND))), fold([*FIRST, *SECOND])
    assert expected_rows(seen, ledger, DATA, INTERNAL) == {"b2": 20, "b1": 9}
    assert expected_rows(seen, ledger, DEAD, INTERNAL) == {"b1": 1}
    assert expected_rows(seen, ledger, LEDGER, INTERNAL) == {"b2": 1, "b1": 1}

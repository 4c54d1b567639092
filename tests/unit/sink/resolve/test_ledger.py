from __future__ import annotations

from calve.sink_core.sink.resolve.ledger import trimmed
from tests.codes import names
from tests.unit.tables.log.build import checkpoint, complete, log, written

LEDGER = "calve.flights_ledger"
LAST = (written("b3", LEDGER), complete("b3"))


def test_a_whole_log_names_the_ledgers_files_of_every_batch() -> None:
    assert trimmed(log(written("b2", LEDGER), complete("b2"), *LAST), LEDGER) == ""


def test_a_trimmed_log_does_not() -> None:
    names(trimmed(log(*LAST, checkpoint(7, batches=4), start=5), LEDGER), 3)

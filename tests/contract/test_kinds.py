"""What each kind promises, by its own processes: a run is killed inside its transaction, and each record is there once.

The whole of it, each crash point of each kind, is in `tests/e2e/faults`.
"""

from __future__ import annotations

import signal

from tests.kinds import Moved
from tests.launch import started
from tests.warm_spark import WarmSpark

INSIDE = {
    # The first transaction of a new sink only notes where it begins.
    "sink": "publish.after-offsets=kill@2",
    "mirror": "transaction.after-offsets=kill",
    "source": "transaction.after-offsets=kill",
}


def test_a_run_killed_inside_its_transaction_loses_and_doubles_nothing(moved: Moved) -> None:
    killed = started("run", moved.file, CALVE_FAILPOINT=INSIDE[moved.kind]).done()
    assert killed.returncode == -signal.SIGKILL
    assert moved.run()["batches"]
    moved.prove()


def test_spark_moves_a_batch(moved: Moved, warm_spark: WarmSpark) -> None:
    moved.on(warm_spark.settings)
    [batch] = moved.run()["batches"]
    assert (batch["written_by"]["engine"], batch["written_by"]["tasks"]) == ("spark", 2)
    moved.prove()

"""Row changes that are merged by a run that is killed, or sleeps while another goes by: as test_row_changes.py."""

from __future__ import annotations

import signal

import pytest

from calve.orchestration.local.broker import Broker
from tests.e2e.faults.kills import RUN_S, done
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.test_row_changes import UPSERT, Rows, anywhere, flow_of  # noqa: F401 - a fixture
from tests.e2e.faults.ways import woken
from tests.failpoints import FAILPOINTS
from tests.warm_spark import WarmSpark

MERGING = [name for name in FAILPOINTS if name.startswith("merge.")]
KILLED, ASLEEP = "merge.after-changes", "merge.after-list"
"""What `make test` has of them."""


def some(name: str, *others: str) -> list[object]:
    rest = [pytest.param(other, marks=pytest.mark.faults) for other in (*MERGING, *others) if other != name]
    return [name, *rest]


@pytest.fixture(scope="module")
def rows(broker: Broker, warm_spark: WarmSpark, launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A pipeline that has run."""
    settings = {**UPSERT, "write_mode": "merge"}
    rows = Rows(flow_of(settings, broker, warm_spark, tmp_path_factory.mktemp("changes")))
    rows.change()
    done(launcher.warm, rows.run)
    return rows


@pytest.mark.parametrize("failpoint", some(KILLED, "commit.after-check", "commit.after-swap"))
def test_a_merge_that_is_killed_there_is_made_anew(failpoint: str, launcher: Launcher, rows: Rows) -> None:
    rows.change()
    process = launcher.warm(rows.run, f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    rows.change()
    done(launcher.warm, rows.run)
    rows.check(launcher)


@pytest.mark.parametrize("failpoint", some(ASLEEP))
def test_a_merge_that_wakes_up_there_late_changes_nothing(failpoint: str, launcher: Launcher, rows: Rows) -> None:
    rows.change()
    with launcher.warm(rows.run, f"{failpoint}=stop@1").asleep(RUN_S) as sleeper:
        rows.change()
        done(launcher.warm, rows.run)
        sleeper.wake()
        code = sleeper.finish(RUN_S)
    expected, said = woken("run", failpoint)
    assert (code, said in sleeper.output_text) == (expected, True), f"{sleeper.output_text}\n{sleeper.errors}"
    rows.check(launcher)

"""A kill at each named place between two effects, and the run after it; a process stopped there that wakes up late."""

from __future__ import annotations

import signal

import pytest

from sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE
from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import RUN_S, prove, run_to_end
from tests.e2e.faults.processes import Launcher
from tests.e2e.faults.world import World
from tests.failpoints import FAILPOINTS

FIRST_RUN = [name for name in FAILPOINTS if name.startswith(("bind.", "publish."))]
"""Places that a pipeline's first run passes before it has a batch."""

REFILL = [name for name in FAILPOINTS if name.startswith(("range.", "publish."))]
"""Places that a refill of a dropped table passes; a commit is that of any run."""

REPLAY = [
    *(name for name in FAILPOINTS if name.startswith(("replay.", "publish."))),
    *(name for name in FAILPOINTS if name.startswith("range.") and name != "range.after-create"),
    "commit.after-list",
    "commit.after-swap",
]
"""Places that a replay passes, its own commit included."""

WAKING_REPLAY = ("replay.after-files", "publish.after-events", "commit.after-list")
WAKING_REFILL = ("range.after-manifests", "publish.after-fence", "publish.after-events")
WAKING = ("publish.after-fence", "publish.after-events", "write.after-manifests", "commit.after-list")


@pytest.fixture(scope="module")
def seasoned(new_world: NewWorld, launcher: Launcher) -> World:
    """A pipeline that has run before."""
    return _run_before(new_world(7, max_records=400), launcher)


@pytest.fixture(scope="module")
def refilled(new_world: NewWorld, launcher: Launcher) -> World:
    """Another one. A refill of a dropped table also brings back what an answer had given up before."""
    return _run_before(new_world(8, max_records=400), launcher)


@pytest.fixture(scope="module")
def replayed(new_world: NewWorld, launcher: Launcher) -> World:
    """One whose rows are replaced again and again."""
    return _run_before(new_world(9, max_records=400), launcher)


def _run_before(world: World, launcher: Launcher) -> World:
    world.produce(100)
    run_to_end(launcher, world)
    return world


def killed_at(failpoint: str, launcher: Launcher, world: World) -> None:
    process = launcher.warm(_command(failpoint, launcher, world), failpoint=f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"


def _command(failpoint: str, launcher: Launcher, world: World) -> list[str]:
    """What passes there, after all that it needs for that."""
    task = failpoint.partition(".")[0]
    if task not in ("orphans", "trim", "resolve"):
        return ["run", world.file]
    run_to_end(launcher, world)
    if task == "resolve":
        return damaged(failpoint, world)
    maintain = ["maintain", world.file, task]
    if task == "orphans":
        world.age_files()
        # The first look deletes nothing.
        assert launcher.warm(maintain).finish(RUN_S) == EXIT_DONE
        world.age_files()
    return maintain


STILL_STANDS = {
    "resolve.after-files": "positions-changed",
    "resolve.after-create": "table-recreated",
    "resolve.after-list": "table-rolled-back",
    "resolve.after-delete": "control-topic-truncated",
    "resolve.after-stamp": "control-topic-truncated",
}
"""The finding that an answer killed there leaves."""

REBUILT = ("control-topic-recreated", "control-topic-truncated")
CHOICES = {"table-rolled-back": "recommit", "other-catalog": "move", **dict.fromkeys(REBUILT, "rebuild")}


def damaged(failpoint: str, world: World) -> list[str]:
    """Damage the world so that the answer to it passes there; returns the answer."""
    if failpoint in ("resolve.after-list", "resolve.after-swap"):
        world.roll_back()
        return answer(world, "table-rolled-back")
    if failpoint == "resolve.after-create":
        world.drop_the_table()
        return answer(world, "table-dropped")
    if failpoint in ("resolve.after-delete", "resolve.after-stamp"):
        world.recreate_the_control_topic()
        return answer(world, "control-topic-recreated")
    if failpoint == "resolve.after-rebind":
        world.spell_the_catalog_otherwise()
        return answer(world, "other-catalog")
    world.move_positions_over_nothing()
    return answer(world, "positions-changed")


def answer(world: World, finding: str) -> list[str]:
    return ["resolve", world.file, finding, "--choose", CHOICES.get(finding, "accept"), "--yes"]


@pytest.mark.parametrize("failpoint", FIRST_RUN)
def test_a_first_run_killed_there_is_made_good_by_the_next(
    failpoint: str, launcher: Launcher, new_world: NewWorld
) -> None:
    world = new_world(1)
    world.produce(100)
    killed_at(failpoint, launcher, world)
    run_to_end(launcher, world)
    prove(launcher, world)


@pytest.mark.parametrize(
    "failpoint", [name for name in FAILPOINTS if not name.startswith(("bind.", "range.", "replay."))]
)
def test_a_run_killed_there_is_made_good_by_the_next(failpoint: str, launcher: Launcher, seasoned: World) -> None:
    seasoned.produce(100)
    killed_at(failpoint, launcher, seasoned)
    if failpoint in STILL_STANDS:
        assert launcher.warm(answer(seasoned, STILL_STANDS[failpoint])).finish(RUN_S) == EXIT_DONE
    run_to_end(launcher, seasoned)
    assert seasoned.difference().none


def refill_to_end(launcher: Launcher, world: World) -> None:
    process = launcher.warm(_refill(world))
    assert process.finish(RUN_S) == EXIT_DONE, f"{process.output_text}\n{process.errors}"


def _refill(world: World) -> list[str]:
    return ["replay", world.file, "--table", world.table, "--refill"]


@pytest.mark.parametrize("failpoint", REFILL)
def test_a_refill_killed_there_is_made_good_by_the_next(failpoint: str, launcher: Launcher, refilled: World) -> None:
    refilled.drop_table()
    process = launcher.warm(_refill(refilled), failpoint=f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    refill_to_end(launcher, refilled)
    run_to_end(launcher, refilled)
    assert refilled.difference().none


@pytest.mark.parametrize("failpoint", WAKING_REFILL)
def test_a_refill_that_wakes_up_late_changes_nothing(failpoint: str, launcher: Launcher, refilled: World) -> None:
    refilled.drop_table()
    sleeper = launcher.warm(_refill(refilled), failpoint=f"{failpoint}=stop@1")
    assert sleeper.await_stop(RUN_S), f"{failpoint} was not reached: {sleeper.output_text}"
    refill_to_end(launcher, refilled)
    sleeper.wake()
    assert sleeper.finish(RUN_S) in (EXIT_DONE, EXIT_UNREACHABLE), f"{sleeper.output_text}\n{sleeper.errors}"
    assert "Traceback" not in sleeper.errors
    run_to_end(launcher, refilled)
    assert refilled.difference().none


@pytest.mark.parametrize("failpoint", WAKING)
def test_a_run_that_wakes_up_late_changes_nothing(failpoint: str, launcher: Launcher, seasoned: World) -> None:
    seasoned.produce(100)
    sleeper = launcher.warm(["run", seasoned.file], failpoint=f"{failpoint}=stop@1")
    assert sleeper.await_stop(RUN_S), f"{failpoint} was not reached: {sleeper.output_text}"
    run_to_end(launcher, seasoned)
    sleeper.wake()
    assert sleeper.finish(RUN_S) in (EXIT_DONE, EXIT_UNREACHABLE), f"{sleeper.output_text}\n{sleeper.errors}"
    assert "Traceback" not in sleeper.errors
    assert seasoned.difference().none


def test_after_all_of_them_the_proof_holds(launcher: Launcher, seasoned: World, refilled: World) -> None:
    for world in (seasoned, refilled):
        run_to_end(launcher, world)
        prove(launcher, world)


def _replay(world: World) -> list[str]:
    return ["replay", world.file, "--table", world.table, "--from", "2020-01-01T00:00:00Z"]


@pytest.mark.parametrize("failpoint", REPLAY)
def test_a_replay_killed_there_is_made_good_by_the_next(failpoint: str, launcher: Launcher, replayed: World) -> None:
    process = launcher.warm(_replay(replayed), failpoint=f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    assert replayed.difference().none
    process = launcher.warm(_replay(replayed))
    assert process.finish(RUN_S) == EXIT_DONE, f"{process.output_text}\n{process.errors}"
    prove(launcher, replayed)


@pytest.mark.parametrize("failpoint", WAKING_REPLAY)
def test_a_replay_that_wakes_up_late_changes_nothing(failpoint: str, launcher: Launcher, replayed: World) -> None:
    sleeper = launcher.warm(_replay(replayed), failpoint=f"{failpoint}=stop@1")
    assert sleeper.await_stop(RUN_S), f"{failpoint} was not reached: {sleeper.output_text}"
    process = launcher.warm(_replay(replayed))
    assert process.finish(RUN_S) == EXIT_DONE, f"{process.output_text}\n{process.errors}"
    sleeper.wake()
    assert sleeper.finish(RUN_S) in (EXIT_DONE, EXIT_UNREACHABLE), f"{sleeper.output_text}\n{sleeper.errors}"
    assert "Traceback" not in sleeper.errors
    prove(launcher, replayed)

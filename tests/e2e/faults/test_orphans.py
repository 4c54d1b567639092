"""Orphan removal by one process while others sleep in the middle of a batch or a commit, and wake up after it."""

from __future__ import annotations

from sink_core.errors import EXIT_DONE, EXIT_UNREACHABLE
from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import RUN_S, prove, run_to_end
from tests.e2e.faults.processes import Launcher, Process
from tests.e2e.faults.world import World


def asleep(launcher: Launcher, world: World, failpoint: str) -> Process:
    sleeper = launcher.warm(["run", world.file], failpoint=f"{failpoint}=stop@1")
    assert sleeper.await_stop(RUN_S), f"{failpoint} was not reached: {sleeper.output_text}"
    return sleeper


def remove_orphans(launcher: Launcher, world: World) -> str:
    process = launcher.warm(["maintain", world.file, "orphans"])
    assert process.finish(RUN_S) == EXIT_DONE, process.errors
    return process.output_text


def wake(sleeper: Process) -> None:
    sleeper.wake()
    assert sleeper.finish(RUN_S) in (EXIT_DONE, EXIT_UNREACHABLE), f"{sleeper.output_text}\n{sleeper.errors}"
    assert "Traceback" not in sleeper.errors


def test_sleepers_before_publish_and_before_commit_lose_nothing(launcher: Launcher, new_world: NewWorld) -> None:
    world = new_world(11)
    world.produce(100)
    run_to_end(launcher, world)
    world.age_files()
    assert "the next one deletes" in remove_orphans(launcher, world)
    world.produce(100)
    before_publish = asleep(launcher, world, "write.after-manifests")
    before_commit = asleep(launcher, world, "publish.after-commit")
    orphan = world.age_files()
    assert "deleted" in remove_orphans(launcher, world)
    assert not orphan.exists()
    wake(before_publish)
    wake(before_commit)
    run_to_end(launcher, world)
    assert world.difference().none
    prove(launcher, world)


def test_a_batch_that_was_given_up_is_redone_by_its_own_run(launcher: Launcher, new_world: NewWorld) -> None:
    world = new_world(12)
    world.produce(100)
    run_to_end(launcher, world)
    world.age_files()
    remove_orphans(launcher, world)
    world.produce(100)
    sleeper = asleep(launcher, world, "write.after-manifests")
    orphan = world.age_files()
    remove_orphans(launcher, world)
    assert not orphan.exists()
    wake(sleeper)
    assert world.difference().none, "without another run"
    prove(launcher, world)


def test_a_commit_that_sleeps_before_its_swap_leaves_no_table_unreadable(
    launcher: Launcher, new_world: NewWorld
) -> None:
    world = new_world(13)
    world.produce(100)
    run_to_end(launcher, world)
    world.age_files()
    remove_orphans(launcher, world)
    world.produce(100)
    sleeper = asleep(launcher, world, "commit.after-list")
    orphan = world.age_files()
    remove_orphans(launcher, world)
    assert not orphan.exists()
    wake(sleeper)
    run_to_end(launcher, world)
    assert world.difference().none
    prove(launcher, world)

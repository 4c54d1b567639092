"""Orphan removal by one process while others sleep in the middle of a batch or a commit, and wake up after it.

The places of those that `make test` leaves out are met in one process by tests/integration/test_orphans.py.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager

import pytest

from calve.sink_core.errors import EXIT_DONE
from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import RUN_S, done, prove, run_to_end
from tests.e2e.faults.processes import Launcher, Process
from tests.e2e.faults.world import World


def used_world(launcher: Launcher, new_world: NewWorld, seed: int) -> World:
    """A pipeline that has run, has had the first look for orphans, and has something to read."""
    world = new_world(seed, on_spark=True)
    world.produce(100)
    run_to_end(launcher.warm, world)
    world.age_files()
    assert not any(remove_orphans(launcher, world)), "the first look deletes nothing"
    world.produce(100)
    return world


def asleep(launcher: Launcher, world: World, failpoint: str) -> AbstractContextManager[Process]:
    return launcher.warm(["run", world.file], f"{failpoint}=stop@1").asleep(RUN_S)


def remove_orphans(launcher: Launcher, world: World) -> list[bool]:
    """Whether anything was deleted, by table."""
    said = json.loads(done(launcher.warm, ["maintain", world.file, "orphans", "--json"]).output_text)
    return [outcome["changed"] for outcome in said["done"]]


def wake(sleeper: Process) -> None:
    sleeper.wake()
    assert sleeper.finish(RUN_S) == EXIT_DONE, f"{sleeper.output_text}\n{sleeper.errors}"


def test_sleepers_before_publish_and_before_commit_lose_nothing(launcher: Launcher, new_world: NewWorld) -> None:
    world = used_world(launcher, new_world, 11)
    with (
        asleep(launcher, world, "write.after-manifests") as before_publish,
        asleep(launcher, world, "publish.after-commit") as before_commit,
    ):
        orphan = world.age_files()
        assert any(remove_orphans(launcher, world))
        assert not orphan.exists()
        wake(before_publish)
        wake(before_commit)
    run_to_end(launcher.warm, world)
    prove(launcher.warm, world)


@pytest.mark.faults
def test_a_batch_that_was_given_up_is_redone_by_its_own_run(launcher: Launcher, new_world: NewWorld) -> None:
    world = used_world(launcher, new_world, 12)
    with asleep(launcher, world, "write.after-manifests") as sleeper:
        orphan = world.age_files()
        remove_orphans(launcher, world)
        assert not orphan.exists()
        wake(sleeper)
    assert world.difference().none, "without another run"
    prove(launcher.warm, world)


@pytest.mark.faults
def test_a_commit_that_sleeps_before_its_swap_leaves_no_table_unreadable(
    launcher: Launcher, new_world: NewWorld
) -> None:
    world = used_world(launcher, new_world, 13)
    with asleep(launcher, world, "commit.after-list") as sleeper:
        orphan = world.age_files()
        remove_orphans(launcher, world)
        assert not orphan.exists()
        wake(sleeper)
    run_to_end(launcher.warm, world)
    prove(launcher.warm, world)

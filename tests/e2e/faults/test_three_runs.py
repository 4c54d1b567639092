"""Three runs of one pipeline at the same moment."""

from __future__ import annotations

import pytest

from calve.sink_core.control.decision import Verdict
from tests.e2e.faults.conftest import NewWorld
from tests.e2e.faults.kills import RUN_S, prove, run_to_end
from tests.e2e.faults.processes import Launcher, Start
from tests.e2e.faults.world import World


def three_at_once(start: Start, world: World) -> list[str]:
    """Their outputs; all three end with exit code 0 and nothing on stderr."""
    processes = [start(["run", world.file]) for _ in range(3)]
    codes = [process.finish(RUN_S) for process in processes]
    said = [f"{process.output_text}\n{process.errors}" for process in processes]
    assert codes == [0, 0, 0], "\n---\n".join(said)
    assert [process.errors for process in processes] == ["", "", ""]
    return said


def published(said: list[str]) -> int:
    return sum(text.count(f": {Verdict.PUBLISH.value}: ") for text in said)


@pytest.mark.parametrize("form", ["swift", pytest.param("warm", marks=pytest.mark.faults)])
def test_three_first_runs_bind_one_pipeline_and_create_its_tables_once(
    form: str, launcher: Launcher, new_world: NewWorld
) -> None:
    start, on_spark = launcher.warm, form == "warm"
    world = new_world(1, on_spark=on_spark, **({"spark_from_records": 0} if on_spark else {}))
    world.produce(300)
    assert published(three_at_once(start, world)) >= 1
    run_to_end(start, world)
    prove(start, world)


def test_each_batch_is_published_by_one_of_three_and_the_others_say_so(launcher: Launcher, new_world: NewWorld) -> None:
    world = new_world(3, max_records=10_000)
    world.produce(100)
    run_to_end(launcher.warm, world)
    world.produce(500)
    said = three_at_once(launcher.warm, world)
    assert published(said) == 1
    assert sum(Verdict.STALE.value in text or "caught up" in text for text in said) == len(said)
    prove(launcher.warm, world)

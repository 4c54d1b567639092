"""An answer to a mirror's finding, killed at each of its crash points, then given again if the finding still stands."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.control.slots.slot import TRANSACTION_S
from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED, EXIT_UNREACHABLE
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.timing import Deadline
from tests import mirrors
from tests.gate import only
from tests.integration.test_mirror_answers import delete_records, set_position
from tests.launch import Done, calve, forked
from tests.mirrors import Mirror
from tests.support import Produce, TopicFactory

GENERATION = ("generation.after-record", "generation.after-fence")
PUBLISH = ("publish.after-fence", "publish.after-events", "publish.after-offsets", "publish.after-commit")
MOVED, REBUILT = "positions-missing", "control-topic-truncated"
CASES = [
    *((MOVED, "restore", at) for at in (*GENERATION, *PUBLISH, "resolve.after-effect")),
    *((REBUILT, "rebuild", at) for at in ("resolve.after-delete", *PUBLISH, "resolve.after-token")),
    # The second transaction, of checkpoint and positions; and that behind it.
    *((REBUILT, "rebuild", f"{at}@2") for at in PUBLISH),
    (REBUILT, "rebuild", "resolve.after-effect"),
]


@pytest.fixture
def mirror(broker: Broker, other_broker: Broker, tmp_path: Path, kafka_topic: TopicFactory, produce: Produce) -> Mirror:
    """One that has copied ten records, and has one more to copy."""
    topic = kafka_topic(1)
    made = mirrors.mirror(broker, other_broker, tmp_path, [topic])
    produce(topic, [b"%d" % i for i in range(10)])
    made.run()
    produce(topic, [b"10"])
    return made


def resolve(mirror: Mirror, finding: str, choice: str, **environment: str) -> Done:
    return forked("resolve", mirror.file, finding, "--choose", choice, "--yes", **environment)


def run(mirror: Mirror) -> Done:
    """Where the topic was just emptied nothing says whose transaction hides its end, and it ends by its time-out."""
    deadline = Deadline.after(2 * TRANSACTION_S)
    while (ran := calve("run", mirror.file, "--json")).returncode == EXIT_UNREACHABLE and not deadline.passed:
        pass
    return ran


@pytest.mark.parametrize(
    ("finding", "choice", "failpoint"),
    only({(case[0], case[2].partition(".")[0]): case for case in reversed(CASES)}.values(), of=CASES),
)
def test_an_answer_that_is_killed_is_given_again(mirror: Mirror, finding: str, choice: str, failpoint: str) -> None:
    [topic] = mirror.pipeline.config.source.topics
    if finding == MOVED:
        set_position(mirror, topic, None)
    else:
        delete_records(mirror.target, mirror.pipeline.control_topic, 3)
    name, _, visit = failpoint.partition("@")
    killed = resolve(mirror, finding, choice, **{VARIABLE: f"{name}=kill{visit and '@'}{visit}"})
    assert killed.returncode == -signal.SIGKILL, killed
    ran = run(mirror)
    if ran.returncode == EXIT_STOPPED:
        assert json.loads(ran.stdout)["finding"] == finding
        again = resolve(mirror, finding, choice)
        assert again.returncode == EXIT_DONE, again
        ran = run(mirror)
    assert ran.returncode == EXIT_DONE, ran
    assert mirror.copied(topic) == mirror.records(topic)
    assert mirror.proof().proven

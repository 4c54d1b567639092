"""Worlds in which drivers move records by tasks that are processes too; that of a mirror has two clusters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.control.rounds import Bounds
from calve.sink_core.control.slots.plane import SlotPlane
from calve.sink_core.errors import CalveError, FindingError, RetriableError
from calve.sink_core.mirror.plane import MirrorPlane
from calve.sink_core.mirror.run import run_mirror
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.tasks import InProcessTasks, Task
from calve.sink_core.tasks import Job as Name
from tests.simulation.broker import At, Cluster, Outcome
from tests.simulation.clients import Network
from tests.simulation.scheduler import Process
from tests.simulation.slots.clients import Record
from tests.simulation.slots.oracle import Oracle, SlotOracle
from tests.simulation.stage import Actor, Stage

T = TypeVar("T")

TOPICS = {"orders": 3, "clicks": 2}
"""Of the source at first, with their partitions."""

ATTEMPTS = 3
"""Of a task whose process dies, as Spark tries it again."""

MOST_SLOTS = 6
MOST_PARTITIONS = 4
LOOK_S = 0.1

BOUNDS = Bounds(3, 1e9, 0.0)
"""Of a run."""

CONNECTIONS = "deployment: sim\nkafka: {eu: {bootstrap.servers: source}, us: {bootstrap.servers: target}}\n"

AnySlotPlane = SlotPlane[Any, Any]


@dataclass
class Job:
    """Tasks of one generation under way. `outcomes` by number, of whichever attempt came to an end first."""

    start: Callable[[int], Actor]
    attempts: dict[int, list[Actor]] = field(default_factory=dict[int, list[Actor]])
    outcomes: dict[int, Any] = field(default_factory=dict[int, Any])

    def attempt(self, number: int) -> None:
        """One more, beside those that may still live."""
        self.attempts.setdefault(number, []).append(self.start(number))


@dataclass(frozen=True)
class SlotTasks(InProcessTasks):
    """In place of Spark: each attempt of a task is a process, which outlives its driver."""

    world: SlotWorld = field(kw_only=True)

    def parallelism(self, records: int) -> int:
        del records
        return self.world.slots

    def run(self, task: Task[T], n: int, *, records: int, job: Name | None = None) -> list[T]:
        del records, job
        started = self.world.start_job(task)
        for number in range(n):
            started.attempt(number)
        while len(started.outcomes) < n:
            self.world.scheduler.sleep(LOOK_S)
            for number, attempts in started.attempts.items():
                if number not in started.outcomes and all(actor.process.ended for actor in attempts):
                    if len(attempts) == ATTEMPTS:
                        raise RetriableError(f"task {number} died {ATTEMPTS} times")
                    started.attempt(number)
        outcomes = [started.outcomes[number] for number in range(n)]
        failed = next((each for each in outcomes if isinstance(each, CalveError)), None)
        if failed is not None:
            raise failed
        return outcomes


class SlotWorld(Stage):
    """One history's world, of any kind with slots. `slots` is how many a driver may use now; `jobs` are all that were
    begun, `target` is the cluster that they write to.
    """

    oracle: SlotOracle

    def __init__(self, seed: int, rules: Rules = ALL) -> None:
        super().__init__(seed, rules)
        self.target = Cluster(self.new_id, self.now_ms)
        self.networks = {"target": Network(self.scheduler, self.target, self.fate)}
        self.slots = 2
        self.jobs: list[Job] = []

    def plane(self) -> AnySlotPlane:
        raise NotImplementedError

    def move(self) -> None:
        """What a driver does."""
        raise NotImplementedError

    def deed(self, what: str, chance: random.Random) -> None:
        """What people and other programs do: `produce`, `add partition`, or `settle upstream`."""
        raise NotImplementedError

    def settle(self) -> None:
        """All that brokers still have to do."""
        for network in self.networks.values():
            network.cluster.settle()

    @property
    def position(self) -> object:
        """How far everything is."""
        raise NotImplementedError

    def network_of(self, settings: Any) -> Network:
        return self.networks[str(settings["bootstrap.servers"])]

    @property
    def alive(self) -> list[Actor]:
        """In the order of their beginning."""
        return [actor for actor in self.actors.values() if not actor.process.ended]

    def start_job(self, task: Task[Any]) -> Job:
        current = self.scheduler.current
        assert current is not None
        driver, loss = current.name, self.actors[current.name].loss
        index = len(self.jobs)

        def start(number: int) -> Actor:
            name = f"slot {number} attempt {len(job.attempts.get(number, ()))} of job {index} of {driver}"
            main = partial(self._attempt, job, number, task)
            return self.spawn(name, main, seed=self.chance.getrandbits(30), loss=loss)

        job = Job(start)
        self.jobs.append(job)
        return job

    def _attempt(self, job: Job, number: int, task: Task[Any]) -> None:
        try:
            outcome = task(number)
        except CalveError as error:
            self._judge_task(error)
            outcome = error
        job.outcomes.setdefault(number, outcome)

    def _judge_task(self, error: CalveError) -> None:
        self.outcomes[f"task ended with: {type(error).__name__}"] += 1
        name = self.scheduler.current.name if self.scheduler.current else ""
        self.note(f"{name}: {type(error).__name__}: {error.message}")
        self.oracle.judge(name, error)

    def ended(self, process: Process) -> None:
        super().ended(process)
        if process.error is not None:
            if isinstance(process.error, FindingError):
                self.outcomes[f"finding: {process.error.finding}"] += 1
            self.oracle.judge(process.name, process.error)


class MirrorWorld(SlotWorld):
    """A mirror's: it copies what is at `source`."""

    def __init__(self, seed: int, pipeline: MirrorPipeline, rules: Rules = ALL) -> None:
        super().__init__(seed, rules)
        self.pipeline = pipeline
        self.source = Cluster(self.new_id, self.now_ms)
        self.networks["source"] = Network(self.scheduler, self.source, self.fate)
        for topic, partitions in TOPICS.items():
            self.source.create_topic(topic, partitions, {})
        self.oracle: Oracle = Oracle(pipeline, self.source, self.target, self.note)
        self._records = 0
        self._upstream = 0

    def plane(self) -> MirrorPlane:
        return MirrorPlane(self.pipeline, self.rules, tasks=SlotTasks(world=self))

    def move(self) -> None:
        with self.plane() as plane:
            self.oracle.check_report(run_mirror(plane, bounds=BOUNDS))

    def deed(self, what: str, chance: random.Random) -> None:
        match what:
            case "produce":
                # One by one, or a transaction over several partitions that is committed, aborted or left open.
                ats = [chance.choice(self.partitions) for _ in range(chance.choice((1, 2, 5, 9)))]
                how = chance.random()
                self.produce(ats, transaction=how < 0.5, committed=how < 0.3, open_=how < 0.05)
            case "add partition":
                topic = chance.choice(sorted(self.source.topics))
                number = len(self.source.topics[topic].logs)
                if number < MOST_PARTITIONS:
                    self.source.create_partitions(topic, number + 1)
            case _:
                # What was left open comes to its end, one way or the other.
                for transaction in list(self.source.transactions.values()):
                    if transaction.outcome is Outcome.OPEN:
                        end = chance.choice((self.source.commit, self.source.abort))
                        end(transaction.transactional_id, transaction.epoch)
                self.source.settle()

    @property
    def position(self) -> object:
        return dict(self.oracle.positions)

    @property
    def partitions(self) -> list[At]:
        """Of the source."""
        return [(name, number) for name, topic in self.source.topics.items() for number in range(len(topic.logs))]

    def new_record(self) -> Record:
        """One that no other equals, of all shapes."""
        self._records += 1
        number, chance = self._records, self.chance
        key = chance.choice((None, b"", b"k%d" % number))
        value = chance.choice((None, b"", b"v%d" % number, b"v%d" % number))
        headers = chance.choice(((), (), (("h", b"%d" % number), ("h", None))))
        # Told apart by their time where nothing else does.
        return Record(key, value, 1_600_000_000_000 + number, headers)

    def produce(self, ats: Iterable[At], *, transaction: bool, committed: bool = True, open_: bool = False) -> None:
        """Records for partitions of the source, in a transaction or not."""
        if not transaction:
            for at in ats:
                self.source.append(at, self.new_record())
            return
        self._upstream += 1
        id_ = f"upstream {self._upstream}"
        epoch = self.source.init_transactions(id_)
        for at in ats:
            self.source.produce(id_, epoch, at, self.new_record())
        if not open_:
            (self.source.commit if committed else self.source.abort)(id_, epoch)


def load_mirror(directory: Path) -> MirrorPipeline:
    """The mirror of all histories, whose file is written below `directory`."""
    (directory / "connections.yaml").write_text(CONNECTIONS)
    path = directory / "mirror.yaml"
    path.write_text(
        "name: m\nkind: mirror\nsource: {kafka: eu, topics_regex: '[a-z]+'}\ntarget: {kafka: us, sync_config: false}\n"
        "transaction: {max_bytes: 8B}\nbatch: {max_records: 12, min_task_bytes: 1B}\n"
    )
    pipeline = load(path)
    assert isinstance(pipeline, MirrorPipeline)
    return pipeline

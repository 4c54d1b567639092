"""What every simulated world is made of: a scheduler, the processes on it, and what becomes of their requests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from calve.sink_core.rules import ALL, Rules
from tests.simulation.scheduler import Process, Scheduler


@dataclass
class Actor:
    """What belongs to one process: its own lots, and how much of what it asks for goes astray."""

    process: Process
    chance: random.Random
    loss: float


class Stage:
    """One history's processes. `calm` ends all loss in the network."""

    def __init__(self, seed: int, rules: Rules = ALL) -> None:
        self.chance = random.Random(seed)
        self.rules = rules
        self.scheduler = Scheduler()
        self.calm = False
        self.trace: list[str] = []
        self.visits = Counter[str]()
        self.outcomes = Counter[str]()
        self.actors: dict[str, Actor] = {}

    def now_ms(self) -> int:
        return int(self.scheduler.now_s * 1000)

    def new_id(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"

    def note(self, what: str) -> None:
        self.trace.append(what)

    def spawn(self, name: str, main: Callable[[], None], *, seed: int, loss: float) -> Actor:
        actor = Actor(Process(name, main), random.Random(seed), loss)
        self.actors[name] = actor
        return actor

    def step(self, actor: Actor, steps: int) -> None:
        if actor.process.ended:
            return
        self.scheduler.step(actor.process, steps)
        if actor.process.ended:
            self.ended(actor.process)

    def step_to(self, actor: Actor, failpoint: str) -> None:
        """Let a process go on until it reaches `failpoint`, has to wait, or ends."""
        process = actor.process
        process.at = ""
        while not process.ended and process.at != failpoint:
            self.step(actor, 1)
            if process.waiting:
                return

    def kill(self, actor: Actor) -> None:
        if not actor.process.ended:
            self.note(f"KILL {actor.process.name}")
            self.scheduler.kill(actor.process)

    def reach(self, name: str) -> None:
        """A failpoint: a place for others to go first, or for the process to die."""
        self.visits[name] += 1
        if self.scheduler.current is not None:
            self.scheduler.current.at = name
        self.scheduler.give_way()

    def ended(self, process: Process) -> None:
        """A process has come to its end."""
        error = process.error
        if error is None:
            self.note(f"{process.name} ends")
            return
        self.note(f"{process.name} ends with {type(error).__name__}: {str(error).partition(chr(10))[0]}")
        self.outcomes[f"ended with: {type(error).__name__}"] += 1

    def fate(self, request: str) -> str:
        """What becomes of a request to a cluster, as `Network` has it."""
        process = self.scheduler.current
        if self.calm or process is None:
            return ""
        actor = self.actors[process.name]
        if actor.chance.random() >= actor.loss:
            return ""
        fate = actor.chance.choice(("lost", "unanswered", "late"))
        self.note(f"{request} of {process.name} is {fate}")
        self.outcomes[f"{fate}: {request}"] += 1
        return fate

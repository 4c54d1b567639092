"""The ways to each failpoint: who passes there, what has to be before, and how the work is done by somebody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch

from calve.sink_core.errors import EXIT_DONE, EXIT_STOPPED
from tests.documents import section, table_rows
from tests.e2e.faults.kills import RUN_S, done, run_to_end
from tests.e2e.faults.processes import Start
from tests.e2e.faults.world import World
from tests.failpoints import FAILPOINTS, MIRRORS

EVENTS = 60
SPOILT = 8
ANSWERS = 6
"""How many findings in a row are answered at most."""


@dataclass(frozen=True)
class Way:
    """A command that passes the failpoints `places` (patterns).

    `before` brings about what the command needs and returns its arguments. `choices` are what an operator answers to
    the findings it may leave, `again` says that its work is done by the same command once more.
    """

    name: str
    places: tuple[str, ...]
    before: Callable[[Start, World, str], list[str]]
    choices: Mapping[str, str] = field(default_factory=dict[str, str])
    again: bool = False
    first_use: bool = False
    on_spark: bool = False

    def work(self, start: Start, world: World, args: list[str]) -> list[str]:
        """All of it, by another process, and new records too; returns the findings that a run stopped on meanwhile."""
        if self.again:
            done(start, args)
        world.produce(EVENTS)
        return mend(start, world, self.choices)

    @property
    def failpoints(self) -> list[str]:
        return [n for n in FAILPOINTS if n not in MIRRORS and any(fnmatch(n, place) for place in self.places)]


def mend(start: Start, world: World, choices: Mapping[str, str]) -> list[str]:
    """Run until a run ends well, and answer the findings that stop it; returns these."""
    findings: list[str] = []
    while len(findings) < ANSWERS:
        process = start(["run", world.file])
        code = process.finish(RUN_S)
        if code == EXIT_DONE:
            assert process.errors == ""
            return findings
        assert code == EXIT_STOPPED, f"exit code {code}\n{process.output_text}\n{process.errors}"
        finding, subject, _ = process.errors.split(": ", 2)
        assert finding in choices, process.errors
        findings.append(finding)
        done(start, [*answer(world, finding, choices[finding]), "--subject", subject])
    raise AssertionError(f"{findings} were answered, and a run still stops")


def answer(world: World, finding: str, choice: str) -> list[str]:
    return ["resolve", world.file, finding, "--choose", choice, "--yes"]


def woken(way: str, failpoint: str) -> tuple[int, str]:
    """What docs/design.md says of a process that slept there: its exit code and what it says."""
    rows = table_rows(section("docs/design.md", "Woken up late"))[2:]
    found = [row for row in rows if row[0] == way and any(fnmatch(failpoint, p.strip("`")) for p in row[1].split(", "))]
    assert len(found) == 1, f"docs/design.md, Woken up late: {len(found)} rows for {way} at {failpoint}"
    return int(found[0][2]), found[0][3].strip("`")


def _run(_start: Start, world: World, _failpoint: str) -> list[str]:
    world.produce(EVENTS)
    return ["run", world.file]


def _evolve(_start: Start, world: World, _failpoint: str) -> list[str]:
    world.grow(EVENTS)
    return ["run", world.file]


def _refill(_start: Start, world: World, _failpoint: str) -> list[str]:
    world.drop_table()
    return ["replay", world.file, "--table", world.table, "--refill"]


def _replay(_start: Start, world: World, _failpoint: str) -> list[str]:
    return ["replay", world.file, "--table", world.table, "--from", "2020-01-01T00:00:00Z", "--yes"]


def _letters(start: Start, world: World, _failpoint: str) -> list[str]:
    world.spoil(SPOILT)
    run_to_end(start, world)
    world.mend()
    return ["dead-letters", "replay", world.file, "--yes"]


def _orphans(start: Start, world: World, _failpoint: str) -> list[str]:
    args = ["maintain", world.file, "orphans"]
    world.age_files()
    if not world.orphans_were_listed():
        done(start, args)
        # What the note on the table has written.
        world.age_files()
    return args


def _trim(start: Start, world: World, _failpoint: str) -> list[str]:
    world.produce(EVENTS)
    run_to_end(start, world)
    return ["maintain", world.file, "trim"]


def _answer(start: Start, world: World, failpoint: str) -> list[str]:
    finding, damage = DAMAGE.get(failpoint, ("positions-changed", World.move_positions_over_nothing))
    if damage is World.roll_back:
        # A table that was created again has but one snapshot.
        world.produce(EVENTS)
        run_to_end(start, world)
    damage(world)
    return answer(world, finding, CHOICES[finding])


DAMAGE: Mapping[str, tuple[str, Callable[[World], None]]] = {
    "resolve.after-list": ("table-rolled-back", World.roll_back),
    "resolve.after-swap": ("table-rolled-back", World.roll_back),
    "resolve.after-create": ("table-dropped", World.give_the_table_up),
    "resolve.after-delete": ("control-topic-recreated", World.recreate_the_control_topic),
    "resolve.after-stamp": ("control-topic-recreated", World.recreate_the_control_topic),
    "resolve.after-rebind": ("other-catalog", World.spell_the_catalog_otherwise),
}
"""What is done to a world so that the answer to it passes a failpoint."""

CHOICES = {
    "positions-changed": "accept",
    "table-dropped": "accept",
    "table-recreated": "accept",
    "table-rolled-back": "recommit",
    "other-catalog": "move",
    "control-topic-recreated": "rebuild",
    "control-topic-truncated": "rebuild",
}


def _ledger(_start: Start, world: World, _failpoint: str) -> list[str]:
    world.drop_the_ledger()
    return answer(world, "table-dropped", "rebuild")


REFILLED = {"table-dropped": "refill", "table-recreated": "refill"}
REWRITTEN = {"table-dropped": "rebuild", "table-recreated": "rebuild"}

REPLAYED = (
    "replay.*",
    "range.after-start-commit",
    "range.after-files",
    "range.after-manifests",
    "publish.*",
    "commit.after-list",
    "commit.after-swap",
)

MOVED = (
    "letters.*",
    "replay.after-manifests",
    *(name for name in REPLAYED if name != "replay.*"),
)

WAYS = (
    Way("run", ("plan.*", "write.*", "publish.*", "commit.*"), _run),
    Way("first run", ("bind.*", "publish.*"), _run, first_use=True),
    Way("evolving run", ("evolve.*",), _evolve),
    Way("refill", ("range.*", "publish.*"), _refill, REFILLED),
    Way("replay", REPLAYED, _replay, again=True),
    Way("letters", MOVED, _letters, again=True),
    Way("trim", ("trim.before-*", "trim.after-checkpoint"), _trim, again=True),
    Way("orphans", ("orphans.*", "publish.*"), _orphans, again=True, on_spark=True),
    Way("answer", ("resolve.*",), _answer, CHOICES),
    Way("ledger", ("resolve.after-create", "resolve.after-list"), _ledger, REWRITTEN),
)

CASES = [(way, failpoint) for way in WAYS for failpoint in way.failpoints]

STOPS_ON = {
    ("answer", "resolve.after-files"): ["positions-changed"],
    ("answer", "resolve.after-create"): ["table-recreated"],
    ("answer", "resolve.after-list"): ["table-rolled-back"],
    ("answer", "resolve.after-delete"): ["control-topic-truncated"],
    ("answer", "resolve.after-stamp"): ["control-topic-truncated"],
    ("ledger", "resolve.after-create"): ["table-recreated"],
    ("ledger", "resolve.after-list"): ["table-recreated"],
    **{("refill", name): ["table-recreated"] for name in FAILPOINTS if name != "publish.after-commit"},
}
"""The findings on which the next run stops, where it does."""

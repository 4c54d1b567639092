"""A Hudi table, its control log, and runs that publish and commit: the real committer and coordinator on a modelled
timeline. What publishing promises is shown elsewhere; here a publish is one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calve.sink_core.control.events import Event
from calve.sink_core.errors import CalveError, FindingError
from calve.sink_core.hudi.commit.examine import HudiTables
from calve.sink_core.hudi.commit.table import HudiCommitter
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.staged import HudiFile, Staged, gone
from calve.sink_core.hudi.files.timeline import Instant, instant_text
from calve.sink_core.rules import ALL, Rules
from calve.sink_core.sink.loop.coordinator import Coordinator
from calve.sink_core.tables.batch import ManifestRef
from calve.sink_core.tables.commit import TableCommit
from calve.sink_core.tables.history.findings import Identity
from calve.sink_core.tables.history.record import SummaryKeys
from calve.sink_core.tables.instants import Chain, next_instant
from calve.sink_core.tables.log.events import CommitToTable, DataComplete, DataWritten, StartCommit
from calve.sink_core.tables.log.fold import SINK
from calve.sink_core.tables.log.state import CommitState
from tests.simulation.hudi.timeline import REQUESTED, Fault, ModelClient, ModelTimeline
from tests.simulation.promises import Promise, Violation
from tests.simulation.scheduler import Process
from tests.simulation.stage import Stage
from tests.unit.tables.log.build import bound, complete, manifest

TABLE = "db.t"
KEYS = SummaryKeys("p", "calve.sim.p.control", "calve.sim.p")
PLACE = Place(Path("/table"), Path("/beside"))


class SimLog:
    """A process's reading of the control log."""

    whole = True

    def __init__(self, world: HudiWorld) -> None:
        self._world, self.state = world, CommitState(rules=world.rules)

    def require_whole(self) -> None:
        pass

    def refresh(self) -> CommitState:
        self._world.scheduler.give_way()
        for offset in range(self.state.next_offset, len(self._world.events)):
            SINK.apply(self.state, offset, self._world.events[offset])
        return self.state

    def refresh_to_end(self) -> CommitState:
        return self.refresh()

    def append(self, event: Event) -> None:
        self._world.scheduler.give_way()
        self._world.events.append(event)


class HudiWorld(Stage):
    """One history's world. `staged` are manifests by path; `published` ids in order, `strange` the commits of others.
    Once the lock is lost nothing holds back whoever sleeps between its last check and the completion: then nobody does.
    With a `key` batches are row changes.
    """

    def __init__(self, seed: int, rules: Rules = ALL, faults: Collection[Fault] = (), key: str = "") -> None:
        super().__init__(seed, rules)
        self.key = key
        self.faults = frozenset(faults)
        self.timeline = ModelTimeline()
        self.locks: dict[Path, object] = {}
        self.staged: dict[str, Staged] = {}
        self.events: list[Event] = [bound(), complete("boot", {}, kind="bootstrap", tables=())]
        self.strange = set[Path]()
        self.published: list[str] = []
        self.given: dict[Chain, list[int]] = {"batch": [], "range job": []}
        self.restored = self.lock_lost = False
        self.clock_ms = 0

    def publish(self, chain: Chain) -> None:
        """A batch or range job: its instant, its staged file and its events, by a run on a host of any clock."""
        number = len(self.published)
        batch_id = f"b{number}"
        # Who publishes has read the log up to what it continues; of the other chain it may have seen nothing.
        known = [] if Fault.CLOCK_ALONE in self.faults else self.given[chain]
        last = max(known, default=0)
        of: Chain = "batch" if Fault.ONE_CHAIN in self.faults else chain
        instant_ms = next_instant(last, self.now_ms() - self.clock_ms, of)
        self.given[chain].append(instant_ms)
        path = f"{batch_id}.json"
        file = HudiFile(batch_id, f"{batch_id}_0-0-0_x.parquet", f"calve-{batch_id}", "", 10, 100)
        self.staged[path] = Staged(instant_text(instant_ms), (file,), changes=bool(self.key))
        start = StartCommit(
            pipeline_id="7c9d",
            batch_id=batch_id,
            predecessor="",
            file_prefix="",
            config_fingerprint="",
        )
        written = DataWritten(
            pipeline_id="7c9d",
            batch_id=batch_id,
            table=TABLE,
            table_uuid=self.timeline.uuid,
            schema_id=0,
            manifests=(manifest(path),),
        )
        kind = "batch" if chain == "batch" else "range"
        done: DataComplete = replace(
            complete(batch_id, {"flights": (10 * number,)} if kind == "batch" else {}, kind=kind), instant_ms=instant_ms
        )
        self.events += [start, written, done]
        self.published.append(batch_id)
        self.note(f"PUBLISH {chain} {batch_id} at {instant_text(instant_ms)}")

    def commit(self, name: str) -> None:
        """What a run does that commits: a process's main."""
        log = SimLog(self)
        tables = HudiTables(lambda _name: PLACE, KEYS, Identity("topic-1", "cluster-1"), log)
        client: Any = ModelClient(self, lambda: self.timeline, self.locks, self.faults, lambda: self.completes(name))
        committer = HudiCommitter(client, client, tables, "pipeline.yaml")

        def commits(names: Collection[str]) -> Iterator[tuple[str, TableCommit | CalveError | None]]:
            for each in names:
                try:
                    yield each, committer.commit(each)
                except CalveError as error:
                    yield each, error

        coordinator: Any = Coordinator(log, commits)  # pyright: ignore[reportArgumentType] - the log is modelled
        coordinator.commit(tables=[TABLE]).raise_failures()

    def completes(self, name: str) -> None:
        """Its JVM goes on from here, even if the process is killed."""
        process = self.scheduler.current
        assert process is not None
        process.at = "hudi.completing"
        self.note(f"{name} has passed its last check")
        if not self.lock_lost:
            self.scheduler.give_way()

    def run_ahead(self, ms: int) -> None:
        """Somebody whose clock is ahead commits something of its own."""
        now_ms = self.now_ms() + ms
        instant, last = instant_text(now_ms), self.timeline.read().commits[-1:]
        if self.timeline.has(instant, REQUESTED):
            return
        # Others repeat what ours have said of the table, and not the batches.
        said = dict(self.timeline.said[last[0].path]) if last else {}
        said.pop(KEYS.batches, None)
        path = Path(f"{instant}_{instant}.commit")
        self.timeline.open(instant, REQUESTED)
        self.timeline.instants.append(Instant(instant, "commit", "completed", instant, path))
        self.timeline.said[path], self.timeline.rows[path] = said, ()
        self.strange.add(path)
        self.note(f"SOMEBODY commits under {instant}")

    def restore(self) -> None:
        """Somebody puts the table back by an instant."""
        commits = self.timeline.read().commits
        if len(commits) < 2:
            return
        self.timeline.restore(commits[-2].requested)
        self.restored = True
        self.note(f"SOMEBODY restores to {commits[-2].requested}")

    @property
    def restored_reported(self) -> bool:
        """Whether somebody has taken from the table what was reported, if only afterwards."""
        reported = max((e.stored_offset for e in self.events if isinstance(e, CommitToTable)), default=0)
        left = max((self.offset_of(each) for each in self.timeline.read().commits), default=0)
        return self.restored and left < reported

    def offset_of(self, instant: Instant) -> int:
        said = self.timeline.said[instant.path].get(KEYS.offsets, '{"0": 0}')
        return int(said.partition(": ")[2].rstrip("}"))

    def ended(self, process: Process) -> None:
        super().ended(process)
        error = process.error
        if error is None or (isinstance(error, CalveError) and not isinstance(error, FindingError)):
            return
        if isinstance(error, FindingError):
            if not self.restored_reported:
                raise Violation(Promise.TRUE_FINDINGS, f"{error.finding}, and nobody restored what was reported")
            return
        raise error

    def judge(self) -> None:
        """After the last of all commits, which nobody disturbed."""
        commits = self.timeline.read().commits
        for requested, times in Counter(each.requested for each in commits).items():
            if times > 1:
                raise Violation(Promise.COMMITTED_ONCE, f"instant {requested} was completed {times} times")
        offsets = [self.offset_of(each) for each in commits if each.path not in self.strange]
        if offsets != sorted(set(offsets)):
            raise Violation(Promise.NOTHING_OVERWRITTEN, f"control offsets {offsets} in the order of completion")
        held = sorted(self.timeline.held)
        if self.restored_reported:
            return
        if held != sorted(self.published):
            raise Violation(Promise.PROGRESS, f"published {self.published}, the table has {held}")

    def read_staged(self, _place: Place, ref: ManifestRef) -> Staged:
        self.scheduler.give_way()
        if ref.path not in self.staged:
            raise gone(ref.path)
        return self.staged[ref.path]

    def changes_in(self, place: Place, staged: Staged) -> list[Path]:
        self.scheduler.give_way()
        return [place.staged / file.folder / file.name for file in staged.files]

    def remove_staged(self, _place: Place, batches: Collection[str]) -> None:
        self.scheduler.give_way()
        for batch_id in batches:
            self.staged.pop(f"{batch_id}.json", None)

    def extra_of(self, instant: Instant) -> Mapping[str, str]:
        return self.timeline.said[instant.path]

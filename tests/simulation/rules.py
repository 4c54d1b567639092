"""The protocol's rules, and how each is switched off: by replacing what keeps it, for as long as a test runs.

The first group are rules of DESIGN sections 4 and 5, of which each looks fussy until it is off. The second are bugs
that other systems have had in the same places. A simulation that finds nothing with one of them off proves nothing with
all of them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId

import sink_core.commit.findings
import sink_core.commit.own
import sink_core.commit.replace
import sink_core.commit.swap
import sink_core.commit.table
import sink_core.control.log
import sink_core.maintenance.trim
import sink_core.range_jobs.resolving
import sink_core.resolve.tables
import spark_jobs.batches
import spark_jobs.maintenance.orphans
import spark_jobs.range_job
import tests.simulation.processes
from sink_core.commit.append import Attempt
from sink_core.commit.swap import swap as real_swap
from sink_core.control import checks
from sink_core.control.decision import Decision, Verdict, decide
from sink_core.control.group import to_kafka
from sink_core.control.log import ControlLog
from sink_core.control.logged import Logged
from sink_core.control.publisher import Publisher
from sink_core.control.state import CommitState
from sink_core.offsets import Position
from sink_core.planning import Planner
from sink_core.resolve.jump import Jump
from tests.simulation.broker import Cluster, Log
from tests.simulation.environment import Environment, wherever
from tests.simulation.merging import merge_moves_whatever_main_is, staging_not_asserted

SwitchOff = Callable[[pytest.MonkeyPatch, Environment], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`mixture` is the one whose histories find it first when it is off; None: any."""

    switch_off: SwitchOff
    mixture: str | None = None


def _keep_alive_has_an_id_of_its_own(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = Publisher.keep_alive

    def keep_alive(self: Publisher) -> int:
        other = Publisher(self._settings, transactional_id="other", group=self._group, log=self._log)
        return real(other)

    patch.setattr(Publisher, "keep_alive", keep_alive)


def _keep_alive_without_a_fence(patch: pytest.MonkeyPatch, environment: Environment) -> None:
    def keep_alive(self: Publisher) -> int:
        found = self._group.positions([*self._log.refresh().partitions, self._token])
        network, group = environment.world.network, self._group.name
        offsets = {(p.topic, p.partition): (p.offset, p.metadata or "") for p in to_kafka(found)}
        network.change("commit offsets", lambda: network.cluster.groups.setdefault(group, {}).update(offsets))
        return len(found)

    patch.setattr(Publisher, "keep_alive", keep_alive)


def _bootstrap_without_a_second_look(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = Publisher.publish

    def publish(self: Publisher, decide: Any, events: Any, positions: Any) -> Decision:
        if getattr(events[0], "kind", "") == "bootstrap":
            return real(self, lambda *_: Decision(Verdict.PUBLISH, ""), events, positions)
        return real(self, decide, events, positions)

    patch.setattr(Publisher, "publish", publish)


def _bootstrap_without_an_event(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = Publisher._transaction

    def transaction(self: Publisher, producer: Any, events: Any, positions: Any) -> None:
        real(self, producer, [e for e in events if getattr(e, "kind", "") != "bootstrap"], positions)

    patch.setattr(Publisher, "_transaction", transaction)


def _log_not_asked_for_the_own_batch(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def only_positions(plan: Any, positions: Any, state: Any) -> Decision:
        view: Any = SimpleNamespace(batches={}, positions=state.positions)
        return decide(plan, positions, view)

    patch.setattr(spark_jobs.batches, "decide", only_positions)


def _predecessor_not_compared(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def only_offsets(plan: Any, positions: Any, state: Any) -> Decision:
        same = {at: replace(p, metadata=plan.predecessor) if p.batch_id != plan.batch_id else p
                for at, p in positions.items()}  # fmt: skip
        return decide(plan, same, state)

    patch.setattr(spark_jobs.batches, "decide", only_offsets)


def _positions_not_compared(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(spark_jobs.batches, "decide", lambda *_: Decision(Verdict.PUBLISH, ""))


def _log_read_to_its_lso_after_a_fence(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(ControlLog, "refresh_to_end", lambda self, **_: self.refresh())


def _giving_up_without_a_mark(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(Position, "given_up", lambda self, _mark: self)


def _published_files_not_protected(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(spark_jobs.maintenance.orphans, "named_by_events", lambda *_: set[str]())


def _files_listed_after_the_log_was_read(patch: pytest.MonkeyPatch, environment: Environment) -> None:
    module = spark_jobs.maintenance.orphans
    real_remove, real_give_up = module.remove_orphans, module.give_up
    given_up: dict[int, Any] = {}

    def remove(work: Any, settings: Any) -> Any:
        found = real_give_up(work.session)
        given_up[id(work.session)] = replace(found, state=_copy(found.state))
        environment.world.scheduler.give_way()
        return real_remove(work, settings)

    patch.setattr(module, "give_up", lambda session: given_up[id(session)])
    patch.setattr(tests.simulation.processes, "remove_orphans", remove)


def _copy(state: CommitState) -> CommitState:
    return replace(state, written={table: list(events) for table, events in state.written.items()})


def _sleeping_commits_forgotten(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(spark_jobs.maintenance.orphans, "may_still_land", lambda *_: False)


def _head_not_asserted(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = sink_core.commit.table.build_append

    def build(*given: Any, **named: Any) -> Attempt:
        attempt = real(*given, **named)
        kept = tuple(r for r in attempt.requirements if not isinstance(r, AssertRefSnapshotId))
        return replace(attempt, requirements=kept)

    patch.setattr(sink_core.commit.table, "build_append", build)


def _trim_without_a_checkpoint(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.maintenance.trim, "_write_checkpoint", lambda *_: None)
    patch.setattr(sink_core.maintenance.trim, "_stood_in_for", lambda *_: True)


def _checkpoint_not_waited_for(patch: pytest.MonkeyPatch, _: Environment) -> None:
    """Trims at once what was below the first look."""
    module = sink_core.maintenance.trim
    real = module._look
    seen: dict[int, Any] = {}

    def look(session: Any, *more: Any) -> Any:
        if id(session) not in seen:
            seen[id(session)] = real(session, *more)
            return seen[id(session)]
        return seen.pop(id(session))

    patch.setattr(module, "_look", look)
    patch.setattr(module, "_stood_in_for", lambda *_: True)
    patch.setattr(ControlLog, "refresh_to_end", lambda self, **_: self.refresh())


def _trim_without_asking_the_tables(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.maintenance.trim, "_lacking", lambda *_: iter(()))


def _positions_read_once(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def settled(self: Any, topics: Mapping[str, Any], partitions: list[Any]) -> Any:
        found = self._positions(partitions)
        state = self._session.log.refresh()
        self._stop_on(checks.positions(found, {name: t.topic_id for name, t in topics.items()}, state))
        return found

    patch.setattr(Planner, "_settled_positions", settled)


def _positions_not_held_against_the_log(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(checks, "positions", lambda *_: None)


def _topic_id_not_compared(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(checks, "topic_changed", lambda *_: None)


def _cut_ancestry_let_pass(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.commit.table, "holds_tagged_files", lambda *_: True)


def _ancestry_not_looked_at(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.commit.findings, "_not_an_ancestor", lambda _view: None)


def _missing_tag_let_pass(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.commit.findings, "_tag_gone", lambda *_: None)
    patch.setattr(sink_core.commit.findings, "_less_stored_than_told", lambda *_: None)


def _uncommitted_events_read(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(Log, "committed", lambda self, offset: self.records[offset].value is not None)
    patch.setattr(Log, "last_stable", property(lambda self: self.end))


def _answers_forget_the_token(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = Jump.decide

    def decide(self: Jump, batch_id: str, found: Any, state: CommitState) -> Decision:
        moved = {r.at for r in self.moves}
        only = replace(self, seen={at: p for at, p in self.seen.items() if at in moved})
        return real(only, batch_id, {at: p for at, p in found.items() if at in moved}, state)

    patch.setattr(Jump, "decide", decide)


def _range_jobs_forget_the_token(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(spark_jobs.range_job, "decide", lambda *_: Decision(Verdict.PUBLISH, ""))


def _resolving_job_names_nothing(patch: pytest.MonkeyPatch, _: Environment) -> None:
    resolving = sink_core.range_jobs.resolving
    patch.setattr(resolving, "_names", lambda event, _named: event.resolves is not None)


def _resolving_event_committed_like_any_other(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def pending(self: CommitState, table: str, uuid: str, stored: int) -> list[Logged[Any]]:
        written = (e for e in self.written.get(table, []) if stored <= e.offset < self.limit)
        return [e for e in written if e.event.table_uuid == uuid and e.event.batch_id in self.batches]

    patch.setattr(CommitState, "pending", pending)


def _accepting_moves_nothing_but_the_tag(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = sink_core.resolve.tables.answering

    def answering(session: Any, events: Any, stored: int, given_up: Any, view: Any, state: Any) -> Any:
        return real(session, events, view.nearest.own.stored_offset if view.nearest else 0, given_up, view, state)

    patch.setattr(sink_core.resolve.tables, "answering", answering)


def _history_forgets_the_last_job(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = spark_jobs.range_job.missing

    def missing(table: str, rows: Any, state: CommitState, *, max_offsets: int) -> Any:
        forgetful = copy(state)
        forgetful.range_jobs = dict(list(state.range_jobs.items())[:-1])
        return real(table, rows, forgetful, max_offsets=max_offsets)

    patch.setattr(spark_jobs.range_job, "missing", missing)


def _valid_through_before_its_history(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def valid_through_ms(_view: object, state: CommitState, stored_offset: int, *, from_now: bool) -> int | None:
        del from_now
        return state.valid_through_ms(stored_offset)

    patch.setattr(sink_core.commit.own, "_valid_through_ms", valid_through_ms)


def _retry_without_assertion(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def swap(catalog: Catalog, table: Table, attempt: Attempt) -> Exception | None:
        return real_swap(catalog, table, attempt) and real_swap(catalog, table, replace(attempt, requirements=()))

    wherever(patch, real_swap, swap)


def _deleting_after_a_lost_reply(patch: pytest.MonkeyPatch, environment: Environment) -> None:
    real = sink_core.commit.swap._landed_after_all

    def look(catalog: Catalog, table: Table, attempt: Attempt, cause: Exception) -> bool:
        added: Any = attempt.updates[0]
        environment.world.delete_file(added.snapshot.manifest_list)
        return real(catalog, table, attempt, cause)

    patch.setattr(sink_core.commit.swap, "_landed_after_all", look)


def _check_not_repeated(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = sink_core.commit.table.compare
    seen = set[tuple[int, str]]()

    def first_time(view: Any, state: Any, now: Any) -> Any:
        key = (id(state), view.table)
        if key in seen:
            return None
        seen.add(key)
        return real(view, state, now)

    patch.setattr(sink_core.commit.table, "compare", first_time)


def _log_read_from_its_end(patch: pytest.MonkeyPatch, _: Environment) -> None:
    real = ControlLog._begin

    def begin(self: ControlLog) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self, "log_start", lambda: self._ask(sink_core.control.log.end_offsets))
            return real(self)

    patch.setattr(ControlLog, "_begin", begin)


def _recreated_table_committed_to(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def pending(self: CommitState, table: str, _uuid: str, stored: int) -> list[Logged[Any]]:
        return [e for e in self.written.get(table, []) if stored <= e.offset < self.limit]

    patch.setattr(sink_core.commit.findings, "recreated", lambda *_: None)
    patch.setattr(CommitState, "pending", pending)


def _orphans_told_by_age(patch: pytest.MonkeyPatch, _: Environment) -> None:
    def fence_nobody(session: Any) -> Any:
        return SimpleNamespace(state=session.log.refresh())

    patch.setattr(spark_jobs.maintenance.orphans, "give_up", fence_nobody)
    _published_files_not_protected(patch, _)
    _sleeping_commits_forgotten(patch, _)


def _replay_whatever_the_head_holds(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(sink_core.commit.replace, "_fits", lambda *_: True)


def _state_used_after_a_broken_read(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(ControlLog, "require_whole", lambda _self: None)


def _unstable_positions_read(patch: pytest.MonkeyPatch, _: Environment) -> None:
    patch.setattr(Cluster, "is_stable", lambda *_: True)


RULES: dict[str, Rule] = {
    "one transactional id for everything that moves an offset": Rule(_keep_alive_has_an_id_of_its_own, "guardians"),
    "keep-alive fences": Rule(_keep_alive_without_a_fence, "guardians"),
    "bootstrap looks again after its fence": Rule(_bootstrap_without_a_second_look),
    "bootstrap writes an event": Rule(_bootstrap_without_an_event),
    "the log is asked for the own batch": Rule(_log_not_asked_for_the_own_batch),
    "a batch names its predecessor": Rule(_predecessor_not_compared, "guardians"),
    "positions are compared after the fence": Rule(_positions_not_compared),
    "the log is read to the end seen after the fence": Rule(_log_read_to_its_lso_after_a_fence),
    "giving up leaves a mark": Rule(_giving_up_without_a_mark, "guardians"),
    "offsets are read once they are stable": Rule(_unstable_positions_read),
    "files of published batches are no orphans": Rule(_published_files_not_protected, "guardians"),
    "files are listed before the fence": Rule(_files_listed_after_the_log_was_read, "guardians"),
    "a sleeping commit may still land": Rule(_sleeping_commits_forgotten, "sleepers"),
    "a commit asserts the head": Rule(_head_not_asserted, "ingestion"),
    "merge asserts the parent": Rule(merge_moves_whatever_main_is, "merges"),
    "merge asserts the staging head": Rule(staging_not_asserted, "merges"),
    "trim writes a checkpoint": Rule(_trim_without_a_checkpoint),
    "trim waits for its checkpoint": Rule(_checkpoint_not_waited_for),
    "trim asks the tables": Rule(_trim_without_asking_the_tables),
    "positions are read twice before a finding": Rule(_positions_read_once),
    "positions are held against the log": Rule(_positions_not_held_against_the_log),
    "source topics are known by their ids": Rule(_topic_id_not_compared),
    "a cut ancestry needs proof": Rule(_cut_ancestry_let_pass),
    "the tagged snapshot is an ancestor of the head": Rule(_ancestry_not_looked_at),
    "a missing tag is a finding": Rule(_missing_tag_let_pass, "everything"),
    "an answer compares the token": Rule(_answers_forget_the_token, "refills"),
    "a range job compares the token": Rule(_range_jobs_forget_the_token, "refills"),
    "a resolving range job names tag and base": Rule(_resolving_job_names_nothing, "refills"),
    "a resolving range job counts for its finding only": Rule(_resolving_event_committed_like_any_other, "refills"),
    "a replay asserts the files that it takes out": Rule(_replay_whatever_the_head_holds, "replays"),
    "what a broken read left is not used": Rule(_state_used_after_a_broken_read, "hosts of two versions"),
    "accepting stores the highest known offset": Rule(_accepting_moves_nothing_but_the_tag, "answers"),
    "a history leaves out what was read again": Rule(_history_forgets_the_last_job, "a table added"),
    "VTTS waits for the history": Rule(_valid_through_before_its_history, "a table added"),
    "events count once their transaction is committed": Rule(_uncommitted_events_read),
}

BUGS: dict[str, Rule] = {
    "retry without assertion": Rule(_retry_without_assertion, "ingestion"),
    "deleting after a lost reply": Rule(_deleting_after_a_lost_reply, "ingestion"),
    "check not repeated on retry": Rule(_check_not_repeated),
    "latest instead of earliest": Rule(_log_read_from_its_end),
    "commit to a recreated table": Rule(_recreated_table_committed_to),
    "orphans told by age": Rule(_orphans_told_by_age),
}

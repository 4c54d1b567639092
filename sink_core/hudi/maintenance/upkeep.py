"""Maintenance of Hudi tables by Hudi's own Java client, under the lock that commits have.

    compact    clustering: small files of a partition into few; compaction, where others have written log files
    expire     cleaning: files that a later version has replaced; archiving: instants leave the active timeline
    orphans    files that neither a completed instant nor a published batch names (`orphans.py`)

Commits wait meanwhile, so each step under the lock is small. A step that is killed in between leaves a pending instant:
the next run carries it out first.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.table_maintenance import Compact, Expire
from calve.sink_core.control.maintenance_report import TaskOutcome
from calve.sink_core.errors import Unreachable
from calve.sink_core.failpoints import reach
from calve.sink_core.hudi.commit.examine import HudiTables
from calve.sink_core.hudi.commit.instants import own_instant
from calve.sink_core.hudi.files.timeline import Instant, instant_ms
from calve.sink_core.hudi.java.client import HudiClient, table_type_of
from calve.sink_core.hudi.java.jvm import HudiRefused
from calve.sink_core.hudi.maintenance.orphans import HudiLeftovers, list_leftovers
from calve.sink_core.hudi.table.shape import (
    ACTIVE,
    DATA_FILES,
    LOG_FILES,
    REPLACED,
    partitions_of,
    shape,
)
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.iceberg.catalog.opening import dropped_meanwhile
from calve.sink_core.tables.format.upkeep import Job

COMPACT, EXPIRE = "compact", "expire"

KEPT_AT_MOST = 100
"""Instants, if the file doesn't say: Hudi lists all active ones many times in each commit."""

STEP_BYTES = 512 * 2**20
"""Rewritten under the lock at a time."""

_STRATEGIES = "org.apache.hudi.client.clustering"
_LEAST_ACTIVE = 10
"""Instants that stay in the active timeline in any case: the metadata table is compacted with each tenth."""


@dataclass(frozen=True, slots=True)
class HudiUpkeep:
    """As `Upkeep`."""

    client: HudiClient
    tables: HudiTables

    def compact(self, job: Job, settings: Compact, target_bytes: int) -> TaskOutcome:
        table = self._load(job.name)
        before = _shape(table)
        why = None if job.wanted else table.why_not_owned(job.owned)
        small_bytes = target_bytes * 3 // 4
        settled_before_s = time.time() - settings.lag
        due = [
            name
            for name, files in partitions_of(table.place, table.timeline).items()
            if sum(f.size < small_bytes and f.modified_s < settled_before_s for f in files) >= settings.min_files
        ]
        pending = table.timeline.pending(_SERVICES)
        if why or not (due or pending or before[LOG_FILES]):
            why = why or f"no partition has {settings.min_files} (min_files) small files older than lag"
            return TaskOutcome(COMPACT, job.name, f"nothing to do: {why}", False, before, before)
        if job.dry_run:
            would = f"small files of {len(due):,} partitions would be clustered"
            would += f", {before[LOG_FILES]:,} log files compacted" if before[LOG_FILES] else ""
            return TaskOutcome(COMPACT, job.name, would, False, before, before)
        steps = self._carry_out(job, settings, target_bytes, small_bytes)
        after = _shape(self._load(job.name))
        if not steps:
            why = "Hudi plans nothing for them"
            return TaskOutcome(COMPACT, job.name, f"nothing to do: {why}", False, before, after)
        did = f"{before[DATA_FILES]:,} files into {after[DATA_FILES]:,}, in {steps:,} steps"
        return TaskOutcome(COMPACT, job.name, did, True, before, after)

    def expire(self, job: Job, settings: Expire) -> TaskOutcome:
        table = self._load(job.name)
        before = _shape(table)
        if why := table.why_not_owned(job.owned):
            return TaskOutcome(EXPIRE, job.name, f"nothing to do: {why}", False, before, before)
        if (finding := self.tables.examine(job.name).finding) is not None:
            raise finding.error()
        staying = kept(table, settings, time.time() - settings.older_than)
        going = len(table.timeline.commits) - staying
        if going <= 0:
            why = f"none of the {len(table.timeline.commits):,} instants may go yet"
            return TaskOutcome(EXPIRE, job.name, f"nothing to do: {why}", False, before, before)
        if job.dry_run:
            would = f"{going:,} instants would leave the active timeline, with the files that only they name"
            return TaskOutcome(EXPIRE, job.name, would, False, before, before)
        with self._services(job, _expiry(staying)) as client:
            job.tell(f"{job.name}: cleaning")
            client.clean(own_instant(self._load(job.name)))
            reach("hudi.after-clean")
            job.tell(f"{job.name}: archiving")
            client.archive()
        after = _shape(self._load(job.name))
        gone = before[REPLACED] - after[REPLACED], before[ACTIVE] - after[ACTIVE]
        did = f"{gone[0]:,} files deleted, {gone[1]:,} instants archived"
        return TaskOutcome(EXPIRE, job.name, did, any(gone), before, after)

    def orphans(self, job: Job, older_than_ms: int) -> HudiLeftovers:
        return list_leftovers(self.tables, job, older_than_ms)

    def _carry_out(self, job: Job, settings: Compact, target_bytes: int, small_bytes: int) -> int:
        """Steps until Hudi plans none any more, or `max_bytes` are rewritten; what a killed run left comes first."""
        steps, most = 0, max(1, settings.max_bytes // STEP_BYTES)
        while steps < most:
            pending = self._load(job.name).timeline.pending(_SERVICES)
            with self._services(job, _clustering(target_bytes, small_bytes)) as client:
                planned = {each.requested: each for each in pending} or self._planned(client, job.name)
                if not planned:
                    break
                reach("hudi.after-plan")
                for requested, instant in planned.items():
                    job.tell(f"{job.name}: step {steps + 1}, {instant.action} {requested}")
                    (client.cluster if instant.action in _CLUSTERING else client.compact)(requested, True)
            steps += 1
        return steps

    def _planned(self, client: Any, name: str) -> Mapping[str, Instant]:
        """What Hudi plans now: a clustering, or a compaction of log files."""
        nothing = self.client.jvm.java.org.apache.hudi.common.util.Option.empty()
        has_logs = table_type_of(self._load(name).properties) == "merge_on_read"
        compaction = [client.scheduleCompactionAtInstant] if has_logs else []
        for schedule in (client.scheduleClusteringAtInstant, *compaction):
            requested = own_instant(self._load(name))
            if schedule(requested, nothing):
                return {each.requested: each for each in self._load(name).timeline.at(requested)}
        return {}

    @contextmanager
    def _services(self, job: Job, settings: Mapping[str, str]) -> Generator[Any]:
        """Hudi's client with these settings, under the table's lock. Raises Unreachable for what it refuses."""
        table, keys = self._load(job.name), self.tables.keys
        folder, properties = table.place.folder, table.properties
        try:
            with (
                self.client.jvm.locked(table.place.lock),
                self.client.services(folder, properties, table.schema_text, settings, keys.carried) as client,
            ):
                yield client
        except HudiRefused as error:
            raise Unreachable(
                f"{job.name}: {error}",
                hint="the table stays as it is, and the next run tries again",
                code=Code.HUDI_REFUSED,
            ) from None

    def _load(self, name: str) -> HudiTable:
        table = self.tables.load(name)
        if table is None:
            raise dropped_meanwhile(name)
        return table


def _shape(table: HudiTable) -> dict[str, int]:
    return shape(table.place, table.timeline)


_CLUSTERING = ("clustering", "replacecommit")
_SERVICES = (*_CLUSTERING, "compaction")


def _clustering(target_bytes: int, small_bytes: int) -> dict[str, str]:
    return {
        "hoodie.clustering.plan.strategy.class": f"{_STRATEGIES}.plan.strategy.JavaSizeBasedClusteringPlanStrategy",
        "hoodie.clustering.execution.strategy.class": f"{_STRATEGIES}.run.strategy.JavaSortAndSizeExecutionStrategy",
        "hoodie.clustering.plan.strategy.small.file.limit": str(small_bytes),
        "hoodie.clustering.plan.strategy.target.file.max.bytes": str(target_bytes),
        "hoodie.clustering.plan.strategy.max.bytes.per.group": str(STEP_BYTES),
        "hoodie.clustering.plan.strategy.max.num.groups": "1",
        # One small file alone would be written again each time.
        "hoodie.clustering.plan.strategy.single.group.clustering.enabled": "false",
        "hoodie.compact.inline.max.delta.commits": "1",
    }


def kept(table: HudiTable, settings: Expire, since_s: float) -> int:
    """How many instants stay: those since a moment, `keep_at_most` of them, and `retain_last` in any case."""
    young = sum(instant_ms(each.requested) >= since_s * 1000 for each in table.timeline.commits)
    at_most = settings.keep_at_most if "keep_at_most" in settings.model_fields_set else KEPT_AT_MOST
    most = young if at_most is None else min(young, at_most)
    return max(most, settings.retain_last, _LEAST_ACTIVE)


def _expiry(kept: int) -> dict[str, str]:
    """Cleaning has to leave what is kept of files, and archiving more instants than cleaning."""
    return {
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": str(kept),
        "hoodie.keep.min.commits": str(kept + 1),
        "hoodie.keep.max.commits": str(kept + 2),
    }

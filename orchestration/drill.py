"""A drill: real runs killed at each crash point, on the user's own Kafka, catalog and Spark, with a scratch pipeline.

Everything of it has a generated name: topic, control topic, group, transactional id and tables. `Drill.clean` removes
all of it; what a killed run left behind, files that nobody names included.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaError, KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.config.load import CONNECTIONS_FILE, load_as
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.checklist import Outcome, Status, answers
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_UNREACHABLE, CalveError, ConfigError, Unreachable
from calve.sink_core.failpoints import VARIABLE
from calve.sink_core.iceberg.catalog.opening import open_catalog
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.iceberg.maintenance.dropping import drop_if_empty, drop_with_files, has_namespace
from calve.sink_core.iceberg.read.rows import all_rows
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import ADMIN_TIMEOUT_S
from calve.sink_core.kafka.compat import TIMED_OUT, NewTopic
from calve.sink_core.kafka.failures import answered, reported, said
from calve.sink_core.sink.checks.kafka import KafkaChecks
from calve.sink_core.sink.checks.tables import TableChecks
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.verify.proof import verify
from calve.sink_core.timing import Deadline

CRASH_POINTS = (
    "bind.after-append",
    "plan.after-start-commit",
    "write.after-files",
    "write.after-manifests",
    "publish.after-fence",
    "publish.after-begin",
    "publish.after-letters",
    "publish.after-events",
    "publish.after-offsets",
    "publish.after-commit",
    "commit.after-check",
    "commit.after-list",
    "commit.after-swap",
    "commit.before-report",
    "commit.before-complete",
)
"""Those that a run passes, in its order; only the first run of a pipeline passes the first."""

PREFIX = "calve_drill_"
NAMESPACE = "calve"
PARTITIONS = 4
READY_S = 60.0
SHORT_CUT = 1_000_000_000
_CALVE = "from calve.orchestration.cli.main import app; app()"
_GONE = {KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART}
_SHOWN_CHARACTERS = 500

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Round:
    """One kill and the run after it. `lost` and `twice` count records; `trouble` says what else went wrong."""

    crash_point: str
    killed: bool
    recovered_s: float
    lost: int
    twice: int
    trouble: str = ""

    @property
    def well(self) -> bool:
        return self.killed and not (self.lost or self.twice or self.trouble)


class Drill:
    """One drill with the connections of `pipeline`. Nothing is there before `prepare`; `clean` may always be called."""

    def __init__(self, pipeline: SinkPipeline) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.name = f"{PREFIX}{uuid.uuid4().hex[:8]}"
        self.table = f"{NAMESPACE}.{self.name}"
        self.pipeline = self._written(pipeline)
        self._admin = clients.admin(self.pipeline.kafka.properties)
        self._produced = 0
        self._had_namespace = True

    @property
    def left(self) -> tuple[str, ...]:
        """Where to find what a drill makes."""
        topics = (f"topic {self.name}", f"topic {self.pipeline.control_topic}", f"group {self.pipeline.group}")
        tables = (f"table {name}" for name in self.pipeline.table_names)
        return (*topics, *tables, f"files {self.directory}")

    def prepare(self) -> None:
        """Create the topic, and ask of each part what `calve check` asks.

        Raises ConfigError if something is not permitted or set wrongly, Unreachable if a part does not answer.
        """
        try:
            made = self._admin.create_topics([NewTopic(self.name, PARTITIONS)], request_timeout=ADMIN_TIMEOUT_S)
            answered(made[self.name], f"creating topic {self.name}", ADMIN_TIMEOUT_S)
        except ConfigError as error:
            raise ConfigError(error.message, hint=self._permissions(), code=Code.DRILL) from None
        deadline = Deadline.after(READY_S)
        # A cluster that has never had a group or a transaction makes the topics for them when asked.
        while (bad := self._first_bad()) and bad.status is Status.UNREACHABLE and not deadline.passed:
            time.sleep(1.0)
        if bad is not None:
            why = f"the drill can't begin: {bad.check}: {bad.message}"
            if bad.status is Status.UNREACHABLE:
                raise Unreachable(why, hint=bad.hint, code=Code.DRILL)
            raise ConfigError(why, hint=self._permissions() if bad.unauthorized else bad.hint, code=Code.DRILL)
        with closing(open_catalog(self.pipeline.catalog)) as catalog:
            self._had_namespace = has_namespace(catalog, NAMESPACE)

    def rounds(self, crash_points: Sequence[str], records: int, tell: Tell) -> Iterator[Round]:
        """Kill a run at each of `crash_points`, `records` in all being on their way, and have another make it good.

        Ends early where the runs are refused or don't reach a part: the next one would fare the same.
        """
        for number, crash_point in enumerate(crash_points):
            self._produce(records * (number + 1) // len(crash_points))
            tell(f"{crash_point}: a run that is killed there")
            killed = self._run(crash_point)
            tell(f"{crash_point}: the run after it")
            started = time.monotonic()
            after = self._run()
            recovered_s = time.monotonic() - started
            tell(f"{crash_point}: the proof")
            yield self._judged(crash_point, killed, after, recovered_s)
            if after.returncode in (EXIT_BAD_INPUT, EXIT_UNREACHABLE):
                return

    def clean(self) -> list[str]:
        """Remove everything; returns what could not be removed, each with the reason."""
        steps: list[tuple[str, Callable[[], None]]] = [
            ("tables", self._drop_tables),
            (f"topic {self.name}", lambda: self._delete_topic(self.name)),
            (f"topic {self.pipeline.control_topic}", lambda: self._delete_topic(self.pipeline.control_topic)),
            (f"group {self.pipeline.group}", self._delete_group),
        ]
        left: list[str] = []
        for what, remove in steps:
            try:
                remove()
            except CalveError as error:
                left.append(f"{what}: {error.message}")
        shutil.rmtree(self.directory, ignore_errors=True)
        return left

    def _written(self, pipeline: SinkPipeline) -> SinkPipeline:
        """A pipeline file with the connections written inline, references unresolved, for nobody else to read."""
        catalog = {"name": pipeline.catalog.name, **pipeline.catalog.properties, "spark": dict(pipeline.catalog.spark)}
        document: dict[str, Any] = {
            "name": self.name,
            "source": {"kafka": dict(pipeline.kafka.properties), "topics": [self.name]},
            "catalog": catalog,
            "tables": [{"name": self.table, "auto_create": {"columns": {"id": "long"}}}],
            "spark": pipeline.spark.model_dump(mode="json", by_alias=True, exclude_none=True),
            # The kills are of runs: what a run leaves on a warm Spark would be written behind the clean-up.
            "batch": {"spark_from_records": SHORT_CUT},
        }
        for name, content in (("pipeline.yaml", document), (CONNECTIONS_FILE, {"deployment": pipeline.deployment})):
            (self.directory / name).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return load_as(SinkPipeline, self.directory / "pipeline.yaml")

    def _first_bad(self) -> Outcome | None:
        """The first of the checks that did not hold."""
        kafka = KafkaChecks(self.pipeline)
        with TableChecks(self.pipeline, dict) as tables:
            outcomes = answers([*kafka.checks(), *tables.checks()])
            return next((o for o in outcomes if o.status in (Status.UNREACHABLE, Status.FAILED)), None)

    def _permissions(self) -> str:
        names = f"{PREFIX} or {self.pipeline.group.removesuffix(self.name)}{PREFIX}"
        return (
            f"a drill needs what `calve check` names, and Create, Write and Delete on topics and Delete on groups, all "
            f"for names that begin with {names}: grant it, or take connections of somebody who may"
        )

    def _produce(self, up_to: int) -> None:
        """Append records with the ids from where the last call ended to `up_to`."""
        producer = clients.producer(self.pipeline.kafka.properties)
        failed: list[KafkaError] = []
        with reported(f"writing to topic {self.name}"):
            for number in range(self._produced, up_to):
                producer.produce(
                    self.name,
                    json.dumps({"id": number}).encode(),
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, _message: failed.append(error) if error else None,
                )
                producer.poll(0)
            if producer.flush(ADMIN_TIMEOUT_S) or failed:
                raise KafkaException(failed[0] if failed else KafkaError(TIMED_OUT))
        self._produced = max(up_to, self._produced)

    def _run(self, crash_point: str = "") -> subprocess.CompletedProcess[str]:
        """`calve run` in a process of its own, which kills itself at `crash_point`."""
        environment = {
            **os.environ,
            VARIABLE: f"{crash_point}=kill" if crash_point else "",
            # What a killed process leaves behind goes with the drill.
            "TMPDIR": str(self.directory),
        }
        command = [sys.executable, "-c", _CALVE, "run", str(self.pipeline.path)]
        return subprocess.run(  # noqa: S603 - own arguments
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def _judged(
        self,
        crash_point: str,
        killed: subprocess.CompletedProcess[str],
        after: subprocess.CompletedProcess[str],
        recovered_s: float,
    ) -> Round:
        was_killed = killed.returncode == -signal.SIGKILL
        trouble = [f"the run was not killed: {_said(killed)}"] if not was_killed else []
        trouble += [f"the run after it ended with {_said(after)}"] if after.returncode else []
        with Session.open(self.pipeline) as session:
            seen = Counter(self._ids(session))
            violations = verify(session, deep=True).violations
        trouble += [f"{violation.kind}: {violation.subject}: {violation.message}" for violation in violations[:3]]
        lost = len(set(range(self._produced)) - seen.keys())
        twice = sum(number - 1 for number in seen.values())
        return Round(crash_point, was_killed, round(recovered_s, 1), lost, twice, "; ".join(trouble))

    def _ids(self, session: Session) -> list[int]:
        table = load_if_there(session.catalog, self.table)
        return all_rows(table, ["id"])["id"].to_pylist() if table else []

    def _drop_tables(self) -> None:
        with closing(open_catalog(self.pipeline.catalog)) as catalog:
            for name in self.pipeline.table_names:
                drop_with_files(catalog, name)
            if not self._had_namespace:
                drop_if_empty(catalog, NAMESPACE)

    def _delete_topic(self, name: str) -> None:
        deleted = self._admin.delete_topics([name], request_timeout=ADMIN_TIMEOUT_S)
        _unless_gone(deleted[name], f"deleting topic {name}")

    def _delete_group(self) -> None:
        group = self.pipeline.group
        deleted = self._admin.delete_consumer_groups([group], request_timeout=ADMIN_TIMEOUT_S)
        _unless_gone(deleted[group], f"deleting group {group}")


def _unless_gone(deleted: Future[object], doing: str) -> None:
    try:
        answered(deleted, doing, ADMIN_TIMEOUT_S)
    except CalveError as error:
        if not said(error, *_GONE):
            raise


def _said(done: subprocess.CompletedProcess[str]) -> str:
    last = (done.stderr.strip() or done.stdout.strip())[-_SHOWN_CHARACTERS:]
    return f"exit code {done.returncode}: {last}"

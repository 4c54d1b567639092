"""Row changes whose run is killed, or sleeps while another goes by: the table has the last change of each key."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from calve.orchestration.local.broker import Broker
from tests import support
from tests.changing import by_chdb
from tests.e2e.faults.kills import RUN_S, done
from tests.e2e.faults.processes import Launcher
from tests.pipelines import Flow
from tests.warm_spark import WarmSpark

Sent = tuple[bytes, bytes | None]

PARTITIONS, KEYS, CHANGES, AGAIN = 3, 40, 90, 20
KILLED = ("write.after-files", "publish.after-commit", "commit.after-swap")
ASLEEP = ("commit.after-list",)
"""What `make test` has of them: one before, one between and one after the effects, and the swap that comes too late."""

KILLED_TOO = ("publish.after-events", "commit.after-list")
ASLEEP_TOO = ("publish.after-fence", "commit.after-check")


COLUMNS = {"id": "long", "text": "string"}
# Without a look at the table, which the other one has.
UPSERT = {"mode": "upsert", "on_moved_key": "ignore", "auto_create": {"columns": COLUMNS}}
ORDERED = {"mode": "cdc", "order_by": "source.lsn", "deletes": "soft", "auto_create": {}}


def places(always: Sequence[str], others: Sequence[str]) -> list[Any]:
    """Those of `make test`, and those of the long series."""
    return [*always, *(pytest.param(other, marks=pytest.mark.faults) for other in others)]


@dataclass
class Rows:
    """A pipeline whose records change rows, and what its table must hold."""

    flow: Flow
    wanted: dict[int, str] = field(default_factory=dict[int, str])
    chance: random.Random = field(default_factory=lambda: random.Random(4))

    @property
    def run(self) -> list[str]:
        return ["run", str(self.flow.pipeline.path)]

    def change(self) -> None:
        """Changes of random keys, each key's in one partition; one in four removes its row."""
        records: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
        for _ in range(CHANGES):
            key, text = self.chance.randrange(KEYS), f"{self.chance.getrandbits(40):x}"
            if self.chance.random() < 0.25:
                self.wanted.pop(key, None)
                records[key % PARTITIONS].append((str(key).encode(), None))
            else:
                self.wanted[key] = text
                records[key % PARTITIONS].append((str(key).encode(), json.dumps({"id": key, "text": text}).encode()))
        self.send(records)

    def send(self, records: Sequence[Sequence[Sent]]) -> None:
        """Records for each partition."""
        for partition, given in enumerate(records):
            keys, values = [key for key, _ in given], [value for _, value in given]
            support.produce(self.flow.bootstrap, self.flow.topic, values, partition=partition, keys=keys)

    def check(self, launcher: Launcher) -> None:
        """By ClickHouse's reader and by the proof."""
        found = [row for row in by_chdb(self.flow.load_table()) if not row.get("_is_deleted")]
        assert sorted((row["id"], row["text"]) for row in found) == sorted(self.wanted.items())
        done(launcher.warm, ["verify", str(self.flow.pipeline.path), "--deep"])


@dataclass
class OrderedRows(Rows):
    """By Debezium's events, which come in any partition, and some of them again."""

    sent: list[Sent] = field(default_factory=list[Sent])

    def change(self) -> None:
        """Changes of random keys; one in four removes its row."""
        again = self.chance.sample(self.sent, min(AGAIN, len(self.sent)))
        for _ in range(CHANGES):
            key, text = self.chance.randrange(KEYS), f"{self.chance.getrandbits(40):x}"
            row = {"id": key, "text": text}
            if self.chance.random() < 0.25:
                self.wanted.pop(key, None)
                event = {"op": "d", "before": row, "after": None}
            else:
                self.wanted[key] = text
                event = {"op": "u", "before": None, "after": row}
            event |= {"source": {"lsn": len(self.sent)}, "ts_ms": 5}
            self.sent.append((str(key).encode(), json.dumps(event).encode()))
        records: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
        for record in (*again, *self.sent[-CHANGES:]):
            self.chance.choice(records).append(record)
        self.send(records)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((Rows, UPSERT), id="upsert"),
        # Each batch reads the table, with all its deletes.
        pytest.param((OrderedRows, ORDERED), id="ordered", marks=pytest.mark.faults),
    ],
)
def rows(
    request: pytest.FixtureRequest,
    broker: Broker,
    warm_spark: WarmSpark,
    launcher: Launcher,
    tmp_path_factory: pytest.TempPathFactory,
) -> Rows:
    """A pipeline that has run."""
    kind, settings = request.param
    rows = kind(flow_of(settings, broker, warm_spark, tmp_path_factory.mktemp("changes")))
    rows.change()
    done(launcher.warm, rows.run)
    return rows


def flow_of(settings: dict[str, Any], broker: Broker, warm_spark: WarmSpark, directory: Path) -> Flow:
    """A pipeline whose table has these settings."""
    return Flow.create(
        directory,
        broker.bootstrap,
        support.create_topic(broker.bootstrap, support.unique("changes"), PARTITIONS),
        spark={**warm_spark.settings, "tasks": 2},
        extra={
            "tables": [{"name": "db.events", "key": ["id"], **settings}],
            "batch": {"max_records": 50, "min_task_bytes": "1KiB"},
        },
    )


@pytest.fixture(autouse=True)
def anywhere() -> Generator[None]:
    """chDB reads files below the working directory only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path("/"))
        yield


@pytest.mark.parametrize("failpoint", places(KILLED, KILLED_TOO))
def test_a_run_that_is_killed_there_leaves_every_key_its_last_change(
    failpoint: str, launcher: Launcher, rows: Rows
) -> None:
    rows.change()
    process = launcher.warm(rows.run, f"{failpoint}=kill")
    assert process.finish(RUN_S) == -signal.SIGKILL, f"{failpoint} was not reached: {process.output_text}"
    rows.change()
    done(launcher.warm, rows.run)
    rows.check(launcher)


@pytest.mark.parametrize("failpoint", places(ASLEEP, ASLEEP_TOO))
def test_a_run_that_wakes_up_there_late_puts_no_older_change_over_a_newer(
    failpoint: str, launcher: Launcher, rows: Rows
) -> None:
    rows.change()
    with launcher.warm(rows.run, f"{failpoint}=stop@1").asleep(RUN_S) as sleeper:
        rows.change()
        done(launcher.warm, rows.run)
        sleeper.wake()
        sleeper.finish(RUN_S)
    done(launcher.warm, rows.run)
    rows.check(launcher)

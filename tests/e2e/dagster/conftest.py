"""One deployment for all tests here: daemon, code server, UI, PostgreSQL; a pipeline for each thing that happens."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from playwright.sync_api import BrowserContext

from calve.orchestration.dagster.common.names import PIPELINE_TAG, pool
from calve.orchestration.dagster.common.runs import IN_PROGRESS
from calve.orchestration.dagster.sink.names import COMMIT, INGEST
from calve.orchestration.local.broker import Broker
from calve.sink_core.config.table_maintenance import TASKS
from calve.sink_core.control.events import Event
from calve.sink_core.control.log import Appended, ControlLog
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.e2e.dagster.browser import browser
from tests.e2e.dagster.stack import DYING, Stack, on_postgres, stack, until
from tests.pipelines import Flow
from tests.postgres import postgres
from tests.warm_spark import WarmSpark

SUCCESS = dg.DagsterRunStatus.SUCCESS
VARIABLE = "CALVE_TEST_LAKE"
TOO_LONG = "x" * 4000
"""More than PostgreSQL puts into an index, in which it has the tags of runs."""

BATCH = 100
GROUP = "shop"
GOOD, BAD = 250, 2
DEAD_LETTERS = "db.dead_letters"
HOUR_MS = 3_600_000
CALM = {"dagster": {"automatic": False}}
"""No run starts by itself."""

QUIET = {"maintenance": {"off": list(TASKS)}}
"""Nothing is scheduled, at whatever minute the tests run."""

SHOWN = {
    "dead_letters": {"table": DEAD_LETTERS},
    "objectives": {"dead_letters": "0%"},
    "dagster": {"group": GROUP, "owners": ["team:data", "ann@example.com"]},
}

AGGREGATE = f"""

@dg.asset(
    deps=[dg.AssetKey(["db", "events"])], group_name="{GROUP}", automation_condition=dg.AutomationCondition.eager()
)
def totals() -> None:
    pass


automation = dg.AutomationConditionSensorDefinition(
    "automation",
    target=dg.AssetSelection.assets(totals),
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=4,
)
defs = dg.Definitions.merge(defs, dg.Definitions(assets=[totals], sensors=[automation]))
"""


class Pipelines:
    """What is deployed. Of those that run by themselves one is healthy and its runs are killed, one never reaches its
    catalog and says so at length, one stops on a bad record, and one is looked at; all others are an operator's.
    """

    def __init__(self, directory: Path, broker: Broker, warm_spark: WarmSpark) -> None:
        def flow(namespace: str, *tables: str, extra: Mapping[str, Any], **options: Any) -> Flow:
            topic = support.create_topic(broker.bootstrap, support.unique(namespace), 2)
            names = tuple(f"{namespace}.{table}" for table in tables or ("events",))
            return Flow.create(
                directory,
                broker.bootstrap,
                topic,
                tables=names,
                spark=warm_spark.settings,
                extra={**extra, **QUIET},
                **options,
            )

        calm = partial(flow, extra=CALM)
        self.healthy = flow("healthy", extra={"trigger": {"every": "1s"}})
        self.unreachable = flow(
            "unreachable",
            lake_properties={"uri": f"postgresql+psycopg2://calve@127.0.0.1:1/{TOO_LONG}"},
            extra={"objectives": {"freshness": "10s"}},
        )
        self.stopped = flow("stopped", extra={"on_bad_record": "stop", "objectives": {"lag": 10, "freshness": "10s"}})
        self.shown = flow("db", extra=SHOWN)
        self.hours, self.paused, self.rolled_back = calm("hours"), calm("paused"), calm("rolled_back")
        self.spoiled = calm("spoiled", auto_create={"columns": {"id": "int", "text": "string"}})
        self.alone = calm("alone", "events", "others")
        support.produce(broker.bootstrap, self.stopped.topic, [b"no JSON"])
        for each in (self.healthy, self.unreachable, self.stopped):
            each.produce(range(BATCH))
        self.shown.produce(range(GOOD))
        support.produce(broker.bootstrap, self.shown.topic, [b"{broken"] * BAD, partition=1)
        for each in (self.hours, self.paused, self.rolled_back, self.spoiled, self.alone):
            each.produce(range(10))
        for hour in range(3):
            if hour:
                self.hours.produce(range(10 * hour, 10 * hour + 10))
            with broker_clock(hours_ago=3 - hour):
                self.hours.run()
        for each in (self.paused, self.rolled_back, self.spoiled):
            each.run()
        self.alone.publish()

    def files(self) -> list[Path]:
        """The healthy one's as it is deployed: its catalog is in a variable that the code server alone has."""
        deployed = self.healthy.but(lake_properties={"uri": f"${{ENV:{VARIABLE}}}"})
        others = (self.unreachable, self.stopped, self.shown, self.hours, self.paused)
        flows = (deployed, *others, self.rolled_back, self.spoiled, self.alone)
        return [flow.pipeline.path for flow in flows]

    @property
    def secrets(self) -> Mapping[str, str]:
        return {VARIABLE: support.catalog_properties(self.healthy.lake)["uri"]}


@dataclass
class Deployment:
    """`expected` is how many ids are in the topic of the healthy pipeline."""

    dagster: Stack
    of: Pipelines
    expected: int = BATCH

    @cached_property
    def url(self) -> str:
        """Of the UI, which starts when it is asked for."""
        return self.dagster.webserver()

    @property
    def flag(self) -> Path:
        """As long as it is there, each run takes the failpoint with it that it names."""
        return self.dagster.directory / "failpoint"

    def produce(self, records: int = BATCH, partition: int = 0) -> None:
        self.of.healthy.produce(range(self.expected, self.expected + records), partition=partition)
        self.expected += records

    def arrived(self) -> bool:
        return len(self.of.healthy.ids()) >= self.expected

    def check_all_arrive_once_and_no_run_is_open(self) -> None:
        flow, dagster = self.of.healthy, self.dagster
        until(self.arrived, timeout_s=240, why=dagster.logs)
        assert flow.ids() == list(range(self.expected))
        mine = dg.RunsFilter(statuses=IN_PROGRESS, tags={PIPELINE_TAG: flow.name})
        until(lambda: not dagster.instance.get_runs(mine), timeout_s=120, why=dagster.logs)
        for stage in (INGEST, COMMIT):
            storage = dagster.instance.event_log_storage
            assert storage.get_concurrency_info(pool(flow.pipeline, stage)).active_slot_count == 0
        with flow.session() as session:
            report = verify(session, deep=True)
        assert report.proven, report.violations


@contextmanager
def broker_clock(*, hours_ago: int) -> Generator[None]:
    """What is planned in it was planned so long ago: by the clock of the broker, which can't be set."""
    real = ControlLog.append

    def append(log: ControlLog[Any], event: Event) -> Appended:
        landed = real(log, event)
        return replace(landed, broker_time_ms=landed.broker_time_ms - hours_ago * HOUR_MS)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlLog, "append", append)
        yield


@pytest.fixture(scope="package")
def deployment(
    broker: Broker, warm_spark: WarmSpark, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    directory = tmp_path_factory.mktemp("deployed")
    of = Pipelines(directory, broker, warm_spark)
    options: dict[str, Any] = {"definitions": DYING + AGGREGATE, "secrets": of.secrets}
    with (
        postgres() as server,
        stack(directory / "dagster", of.files(), settings=on_postgres(server), **options) as dagster,
    ):
        dagster.code_server()
        dagster.daemon()
        until(lambda: dagster.runs(of.healthy.name, statuses=[SUCCESS]), timeout_s=240, why=dagster.logs)
        yield Deployment(dagster, of)


@pytest.fixture(scope="package")
def dagster(deployment: Deployment) -> Stack:
    return deployment.dagster


@pytest.fixture(scope="package")
def context() -> Generator[BrowserContext]:
    with browser() as opened:
        yield opened

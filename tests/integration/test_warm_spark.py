"""A warm Spark: started once, used by all runs, ended by whoever may, and never there twice."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_STOPPED
from calve.sink_core.timing import Deadline
from calve.spark_jobs import warm
from tests.codes import raises
from tests.launch import calve, started
from tests.pipelines import COLUMNS, Flow
from tests.support import TopicFactory

WITHIN_S = 60.0
ON_SPARK = {"batch": {"spark_from_records": 0}}


@dataclass(frozen=True)
class Warm:
    """Its folder, and a pipeline's `spark` that uses it."""

    folder: Path

    @property
    def spark(self) -> dict[str, Any]:
        return {"master": "local[2]", "driver_memory": "512MiB", "warm": str(self.folder)}

    @property
    def settings(self) -> SparkSettings:
        return SparkSettings.model_validate(self.spark)

    def kill(self) -> None:
        """With its driver, which would else end a moment later."""
        running = warm.running(self.folder)
        assert running is not None
        keeper = psutil.Process(running.process.pid)
        family = [keeper, *keeper.children(recursive=True)]
        for process in family:
            process.kill()
        psutil.wait_procs(family, timeout=WITHIN_S)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Warm]:
    place = Warm(tmp_path_factory.mktemp("spark") / "größer")
    yield place
    warm.stop(place.folder)


@pytest.fixture
def flow(tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, place: Warm) -> Flow:
    return Flow.create(tmp_path, broker.bootstrap, kafka_topic(1), spark=place.spark, extra=ON_SPARK)


def document(*words: object, exit_code: int = 0) -> Any:
    """What a command says with `--json`, in a process of its own: this one may have a Spark."""
    done = started(*words, "--json").done()
    assert done.returncode == exit_code, done.stdout + done.stderr
    return json.loads(done.stdout)


def run(flow: Flow) -> dict[str, Any]:
    """The engine of the run's one batch."""
    [batch] = document("run", flow.pipeline.path)["batches"]
    return batch["written_by"]


def eventually(holds: Callable[[], bool]) -> None:
    deadline = Deadline.after(WITHIN_S)
    while not holds():
        assert not deadline.passed
        time.sleep(0.1)


def test_runs_share_it_and_merge_on_it(place: Warm, flow: Flow) -> None:
    first = document("spark", "start", flow.pipeline.path)
    rows = {"name": "db.events", "mode": "upsert", "key": ["id"], "write_mode": "merge"}
    flow = flow.but(extra={**ON_SPARK, "tables": [rows | {"auto_create": {"columns": COLUMNS}}]})
    for number in (0, 500):
        flow.produce(range(number, number + 1000))
        used = run(flow)
        assert (used["engine"], used["application_id"], used["ui"]) == ("spark", first["application_id"], first["ui"])
    assert flow.ids() == list(range(1500))
    assert document("spark", "status", flow.pipeline.path) == first | {"runs": 0}


def test_sparks_page_names_the_batch_and_measures_its_tasks(place: Warm, flow: Flow) -> None:
    warm.start(place.folder, place.settings)
    flow.produce(range(7))
    [batch] = document("run", flow.pipeline.path)["batches"]
    page, application = batch["written_by"]["ui"], batch["written_by"]["application_id"]
    jobs = read(f"{page}/api/v1/applications/{application}/jobs")
    named = [job for job in jobs if job.get("jobGroup") == f"{flow.pipeline.group} {batch['batch_id']}"]
    [description] = (job["description"] for job in named)
    assert flow.pipeline.group in description
    assert {batch["batch_id"], "7"} <= {word.strip(",") for word in description.split()}
    metrics = read(f"{page}/metrics/json/")
    prefix = f"{application}.driver.AccumulatorSource.{flow.pipeline.group}"
    totals = {"records": 7, "bytes": batch["value_bytes"]}
    assert {unit: metrics["counters"][f"{prefix}.{unit}"]["count"] for unit in totals} == totals
    tasks = {unit: metrics["histograms"][f"{prefix}.task.{unit}"] for unit in (*totals, "millis")}
    assert {tasks[unit]["count"] for unit in tasks} == {batch["written_by"]["tasks"]}
    assert {unit: tasks[unit]["max"] for unit in totals} == totals
    assert tasks["millis"]["max"] > 0


IN_DAGSTER = """
import json, sys
from pathlib import Path
import dagster as dg
from calve import build_pipeline_defs, load_pipeline
from calve.orchestration.dagster.common.names import job_name
from calve.orchestration.dagster.sink.names import INGEST, batches_key

pipeline = load_pipeline(Path(sys.argv[1]))
with dg.DagsterInstance.ephemeral() as instance:
    job = build_pipeline_defs(pipeline).resolve_job_def(job_name(pipeline, INGEST))
    assert job.execute_in_process(instance=instance).success
    [record] = instance.fetch_materializations(batches_key(pipeline), limit=1).records
    print(json.dumps({name: value.value for name, value in record.asset_materialization.metadata.items()
        if name in ("engine", "tasks", "spark application", "spark master", "spark page")}))
"""


def test_a_run_in_dagster_uses_it_and_its_materialization_says_so(place: Warm, flow: Flow) -> None:
    running = warm.start(place.folder, place.settings)
    flow.produce(range(7))
    command = [sys.executable, "-c", IN_DAGSTER, str(flow.pipeline.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "engine": "spark",
        "tasks": 1,
        "spark application": running.application_id,
        "spark master": "local[2]",
        "spark page": running.ui,
    }
    assert flow.ids() == list(range(7))


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:  # noqa: S310 - of our own Spark
        return json.load(answer)


def test_a_second_start_finds_the_first_and_other_settings_do_not(place: Warm, flow: Flow) -> None:
    running = warm.start(place.folder, place.settings)
    assert document("spark", "start", flow.pipeline.path)["pid"] == running.process.pid
    other = {**place.spark, "conf": {"spark.sql.shuffle.partitions": "2"}}
    refused = calve("spark", "start", flow.but(spark=other).pipeline.path, "--json")
    assert (refused.returncode, json.loads(refused.stdout)["code"]) == (EXIT_BAD_INPUT, Code.RUNS_OTHERWISE)
    flow.produce(range(3))
    assert run(flow.but(spark=other))["application_id"] != running.application_id


def test_only_its_owner_can_read_the_way_to_it(place: Warm) -> None:
    running = warm.start(place.folder, place.settings)
    assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
    for file in ("spark.json", "settings.json", "spark.log"):
        assert stat.S_IMODE((place.folder / file).stat().st_mode) == 0o600
    assert running.secret not in repr(running)
    words = [word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or ()]
    assert not any(running.secret in word for word in words)


TASKS = """
import os, sys
from pathlib import Path
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs.tasks import SparkTasks
sys.path.insert(0, sys.argv[2])
import in_the_task
with SparkTasks(SparkSettings(master="local[2]", driver_memory="512MiB", warm=sys.argv[1])) as tasks:
    print(tasks.run(in_the_task.answer, 2))
    print(tasks.run(in_the_task.answer, 1)[0].endswith("0"))
"""
"""A run whose task is of a module that only the run can import."""


def in_a_run(place: Warm, folder: Path, answer: str, **environment: str) -> subprocess.Popen[str]:
    """A run in `folder` whose tasks give `answer`, an expression."""
    folder.mkdir(exist_ok=True)
    code = f"import os, sys, time\nfrom pathlib import Path\nfor_all = []\n\ndef answer(number):\n    return {answer}\n"
    (folder / "in_the_task.py").write_text(code)
    return subprocess.Popen(
        [sys.executable, "-c", TASKS, str(place.folder), str(folder)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_task_finds_folder_modules_and_environment_of_its_run_and_nothing_of_others(
    place: Warm, tmp_path: Path
) -> None:
    warm.start(place.folder, place.settings)
    answer = "f'{Path.cwd().name} {os.environ.get(\"OF_THE_RUN\")} {for_all.append(1)} {len(for_all)} {number}'"
    for name, value in (("one", "first"), ("two", "second")):
        run = in_a_run(place, tmp_path / name, answer, OF_THE_RUN=value)
        stdout, stderr = run.communicate(timeout=WITHIN_S)
        expected = [f"{name} {value} None 1 {number}" for number in (0, 1)]
        assert stdout == f"{expected}\nTrue\n", stderr
    assert "OF_THE_RUN" not in os.environ


def test_a_killed_run_has_its_tasks_ended(place: Warm, tmp_path: Path) -> None:
    running = warm.start(place.folder, place.settings)
    run = in_a_run(place, tmp_path / "long", "Path(f'{os.getpid()}.pid').touch() or time.sleep(600)")
    eventually(lambda: len(list((tmp_path / "long").glob("*.pid"))) == 2)
    tasks = [psutil.Process(int(file.stem)) for file in (tmp_path / "long").glob("*.pid")]
    assert len(running.runs) == 1
    run.kill()
    run.communicate()
    assert psutil.wait_procs(tasks, timeout=WITHIN_S)[1] == []
    eventually(lambda: running.runs == [])


def test_an_interrupted_run_has_its_own_tasks_ended_and_no_others(place: Warm, tmp_path: Path) -> None:
    warm.start(place.folder, place.settings)
    runs = [
        in_a_run(place, tmp_path / name, f"Path('{name}').write_text(str(os.getpid())) and time.sleep(600)")
        for name in ("a", "b")
    ]
    files = [tmp_path / name / name for name in ("a", "b")]
    # Each takes a core; both have a task at work once one of the two tasks of each is.
    eventually(lambda: any(file.is_file() and file.read_text() for file in files))
    first = next(number for number, file in enumerate(files) if file.is_file() and file.read_text())
    runs[first].send_signal(signal.SIGINT)
    runs[first].communicate(timeout=WITHIN_S)
    # Those of the other get the cores.
    eventually(lambda: files[1 - first].is_file() and files[1 - first].read_text() != "")
    task = psutil.Process(int(files[1 - first].read_text()))
    assert task.is_running()
    runs[1 - first].kill()
    runs[1 - first].communicate()
    psutil.wait_procs([task], timeout=WITHIN_S)


def test_a_run_that_is_interrupted_while_spark_starts_leaves_none(flow: Flow) -> None:
    flow.produce(range(10))
    alone = flow.but(spark={"master": "local[2]", "warm": "never"})
    run = started("run", alone.pipeline.path)
    process = psutil.Process(run.process.pid or 0)
    eventually(lambda: any(child.name() == "java" for child in process.children()))
    [driver] = [child for child in process.children() if child.name() == "java"]
    process.send_signal(signal.SIGINT)
    assert run.done().returncode == 130
    assert psutil.wait_procs([driver], timeout=WITHIN_S)[1] == []


def test_a_dead_one_is_replaced_by_the_runs_that_find_it_and_by_one_only(place: Warm, flow: Flow) -> None:
    dead = warm.start(place.folder, place.settings)
    place.kill()
    assert document("spark", "status", flow.pipeline.path, exit_code=EXIT_STOPPED)["running"] is False
    flow.produce(range(10))
    other = Flow.create(flow.files.parent, flow.bootstrap, flow.topic, spark=place.spark, extra=ON_SPARK)
    with ThreadPoolExecutor() as pool:
        used = [each["application_id"] for each in pool.map(run, (flow, other))]
    running = warm.running(place.folder)
    assert running is not None
    assert used == [running.application_id] * 2
    assert running.process.pid != dead.process.pid
    assert keepers(place) == [running.process.pid]


FILL = """
import sys
from pyspark import SparkContext
from calve.sink_core.config.connections import SparkSettings
from calve.spark_jobs.session import start
started = start(SparkSettings(master="local[2]", driver_memory="512MiB", warm=sys.argv[1]))
jvm = SparkContext._gateway.jvm
held = [SparkContext._gateway.new_array(jvm.long, 2 * 1024 * 1024) for _ in range(15)]
for _ in range(2):
    jvm.java.lang.System.gc()
print(started.context.applicationId)
"""
"""A run that holds most of the heap and ends without a word."""


def test_a_full_one_is_replaced_once_nobody_uses_it(place: Warm, flow: Flow) -> None:
    full = warm.start(place.folder, place.settings)
    command = [sys.executable, "-c", FILL, str(place.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.stdout.strip() == full.application_id, done.stderr
    eventually(lambda: not full.is_alive())
    flow.produce(range(10))
    assert run(flow)["application_id"] not in ("", full.application_id)
    assert warm.running(place.folder) is not None


def keepers(place: Warm) -> list[int]:
    """Of its folder, by the processes of this machine."""
    found = (p for p in psutil.process_iter(["cmdline"]) if "calve.spark_jobs.keeper" in (p.info["cmdline"] or ()))
    return [process.pid for process in found if str(place.folder) in process.info["cmdline"]]


def test_of_several_starts_at_once_one_is_left(tmp_path: Path) -> None:
    place = Warm(tmp_path / "warm")
    try:
        with ThreadPoolExecutor() as pool:
            running = set(pool.map(lambda _: warm.start(place.folder, place.settings), range(4)))
        [one] = running
        eventually(lambda: keepers(place) == [one.process.pid])
    finally:
        warm.stop(place.folder)


def test_a_stopped_one_is_not_started_again_by_a_run(place: Warm, flow: Flow) -> None:
    stopped = warm.start(place.folder, place.settings)
    family = psutil.Process(stopped.process.pid).children(recursive=True)
    assert document("spark", "stop", flow.pipeline.path) == {"stopped": True}
    assert psutil.wait_procs(family, timeout=WITHIN_S)[1] == []
    assert document("spark", "stop", flow.pipeline.path) == {"stopped": False}
    flow.produce(range(10))
    used = run(flow)
    assert (used["engine"], used["application_id"] != stopped.application_id) == ("spark", True)
    assert warm.recorded(place.folder) is None


def test_one_that_dagster_started_ends_once_nobody_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Warm(tmp_path / "warm")
    monkeypatch.setattr(warm, "UNUSED_S", 1.0)
    assert warm.keep(place.settings)
    running = warm.start(place.folder, place.settings)
    assert warm.keep(place.settings) == ""
    eventually(lambda: warm.recorded(place.folder) is None)
    psutil.wait_procs([psutil.Process(running.process.pid)] if running.is_alive() else [], timeout=WITHIN_S)


def test_one_of_another_version_is_ended_where_nobody_uses_it(place: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    running = warm.start(place.folder, place.settings)
    monkeypatch.setattr(warm, "_code", lambda: ("0.0.0", 0.0))
    assert warm.find(place.settings) is None
    with raises(Code.RUNS_OTHERWISE) as refused:
        warm.start(place.folder, place.settings)
    assert refused.value.code == Code.RUNS_OTHERWISE
    assert str(place.folder) in warm.keep(place.settings)
    assert not running.is_alive()


def test_none_is_used_where_the_file_says_never(flow: Flow) -> None:
    refused = calve("spark", "start", flow.but(spark={"master": "local[2]", "warm": "never"}).pipeline.path)
    assert refused.returncode == EXIT_BAD_INPUT
    assert warm.find(SparkSettings(master="local[2]", warm="never")) is None


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    settings = SparkSettings(master="nowhere", warm=str(tmp_path / "warm"))
    with raises(Code.NOT_STARTED) as failed:
        warm.start(tmp_path / "warm", settings)
    assert failed.value.code == Code.NOT_STARTED
    assert "Could not parse Master URL" in failed.value.message or "Master must" in failed.value.message
    assert warm.find(settings) is None, "no run tries it again"
    assert str(tmp_path / "warm") in warm.keep(settings)
    assert warm.running(tmp_path / "warm") is None

"""A source of somebody's own, from its files into a real broker's topics."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest
import yaml
from confluent_kafka import Producer
from dagster import DagsterInstance

from calve import build_pipeline_defs
from calve.orchestration.dagster.common.names import job_name
from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_DONE
from calve.sink_core.failpoints import VARIABLE
from tests import support
from tests.codes import finding, raises
from tests.failpoints import SOURCES
from tests.gate import every_second
from tests.launch import calve, forked
from tests.source_flow import Made, lines_of
from tests.warm_spark import WarmSpark


@pytest.fixture
def made(broker: Broker, tmp_path: Path) -> Made:
    return lines_of(broker, tmp_path, partitions=3, dead=True)


def test_each_line_is_there_once_and_the_offsets_in_connects_form(made: Made) -> None:
    made.write("a", *(f"a{i}" for i in range(25)))
    made.write("b", "b0", "# dropped", "!bad", "b1")
    report = made.run()
    assert (report.ended, report.records) == ("caught up", 27)
    assert Counter(made.values()) == Counter([*(f"a{i}" for i in range(25)), "b0", "b1"])
    assert made.values(f"{made.topic}.dead") == ["!bad"]
    name = made.pipeline.name
    assert made.offsets() == {
        f'["{name}",{{"file":"a.txt"}}]': {"line": 25},
        f'["{name}",{{"file":"b.txt"}}]': {"line": 4},
    }
    [batch] = report.batches
    assert (batch.moved, batch.dropped, batch.dead_letters) == (2, 1, 1)
    assert (made.folder / "acknowledged").read_text() == "a.txt 25\nb.txt 4\n"

    assert made.run().batches == []
    made.write("b", "b2")
    assert made.run().records == 1
    assert Counter(made.values())["b2"] == 1


def test_a_file_that_its_class_can_not_read_on_stands_alone(broker: Broker, tmp_path: Path) -> None:
    made = lines_of(broker, tmp_path, of="TornLines")
    made.write("a", "a0", "torn\\")
    made.write("b", "b0", "b1")
    report = made.run()
    assert ([blocker.where for blocker in report.blockers], report.ended != "caught up") == (["a.txt"], True)
    assert (made.values(f"{made.topic}.b"), made.values(f"{made.topic}.a")) == (["b0", "b1"], [])
    (made.folder / "a.txt").write_text("a0\nmended\n")
    assert (made.run().ended, made.values(f"{made.topic}.a")) == ("caught up", ["a0", "mended"])


POINTS = (
    "topics.after-create",
    "generation.after-record",
    "generation.after-fence",
    "slot.before-init",
    "slot.after-init",
    "slot.after-check",
    "transaction.after-begin",
    "source.after-offsets",
    "transaction.after-event",
    "transaction.after-offsets",
    "transaction.after-commit",
    "source.before-acknowledge",
)


def test_every_point_of_a_source_has_its_kill() -> None:
    assert {*POINTS} >= SOURCES


@pytest.mark.parametrize("point", every_second(POINTS))
def test_a_run_that_is_killed_loses_and_doubles_nothing(point: str, made: Made) -> None:
    made.write("a", *(f"a{i}" for i in range(35)))
    made.write("b", "b0", "!bad", "b1")
    # In the middle, where a transaction is not the first.
    second = "@2" if point.startswith(("transaction", "source.after")) else ""
    killed = forked("run", made.file, **{VARIABLE: f"{point}=kill{second}"})
    assert killed.returncode == -signal.SIGKILL
    made.write("a", "late")
    done = calve("run", made.file)
    assert done.returncode == EXIT_DONE, done.stderr
    assert Counter(made.values()) == Counter([*(f"a{i}" for i in range(35)), "late", "b0", "b1"])
    assert made.values(f"{made.topic}.dead") == ["!bad"]
    assert made.offsets() == {made.key("a"): {"line": 36}, made.key("b"): {"line": 3}}
    assert (made.folder / "acknowledged").read_text() == "a.txt 36\nb.txt 3\n"


def test_what_the_commands_say(made: Made) -> None:
    made.write("a", "a0", "a1", "# nothing")
    checked = calve("check", made.file)
    assert checked.returncode == EXIT_DONE, checked.stdout
    # In the words of `tests.lines_source`.
    assert f"lines of {made.folder}" in checked.stdout
    assert "3 lines" in checked.stdout
    planned = json.loads(calve("plan", made.file, "--json").stdout)
    assert planned == {
        "bootstrapped": False,
        "batch": [{"partition": {"file": "a.txt"}, "from": None, "to": {"line": 3}, "records": 3}],
    }
    said = calve("run", made.file).stdout.splitlines()
    assert {"2", "4", "1"} <= {*said[0].split()}
    assert [line.split()[0] for line in said[1:]] == ["1", "2"], "rows that the source dropped, and records in all"
    assert json.loads(calve("plan", made.file, "--json").stdout)["batch"] is None
    shown = json.loads(calve("status", made.file, "--json").stdout)
    assert (shown["lag"], shown["records"], shown["waiting"], shown["findings"]) == (0, 2, "0 lines", [])
    assert shown["offsets"] == [{"partition": {"file": "a.txt"}, "offset": {"line": 3}}]
    assert "a.txt" in calve("status", made.file).stdout
    assert calve("pause", made.file, "--wait").returncode == EXIT_DONE
    made.write("a", "a3")
    assert "1 lines" in calve("status", made.file).stdout
    assert json.loads(calve("run", made.file, "--json").stdout)["batches"] == []
    assert calve("resume", made.file).returncode == EXIT_DONE
    assert made.run().records == 1
    assert calve("check", made.file).returncode == EXIT_DONE


def test_a_run_in_dagster_is_told_by_batch_and_by_topic(made: Made, instance: DagsterInstance) -> None:
    made.write("a", "a0", "a1", "!bad")
    definitions = build_pipeline_defs(made.pipeline)
    sensor = definitions.get_repository_def().get_sensor_def(f"{made.pipeline.name}_lag")
    with dg.build_sensor_context(instance) as context:
        assert len(sensor.evaluate_tick(context).run_requests or ()) == 1
    job = definitions.resolve_job_def(job_name(made.pipeline, "copy"))
    done = job.execute_in_process(instance=instance)
    told = {
        "/".join(each.asset_key.path): {name: value.value for name, value in each.metadata.items()}
        for each in (e.step_materialization_data.materialization for e in done.all_events if e.is_step_materialization)
    }
    name = made.pipeline.name
    assert told.keys() == {f"{name}/copy", f"{name}/{made.topic}", f"{name}/{made.topic}.dead"}
    assert (told[f"{name}/copy"]["records"], told[f"{name}/copy"]["dead letters"]) == (2, 1)
    assert told[f"{name}/{made.topic}"]["records"] == 2
    assert {each.check_name: each.passed for each in done.get_asset_check_evaluations()} == dict.fromkeys(
        ["lag", "freshness", "held", "blockers", "findings", "chain"], True
    )
    with dg.build_sensor_context(instance) as context:
        ticked = sensor.evaluate_tick(context)
    assert (ticked.skip_message or "").startswith("caught up")
    [seen] = ticked.asset_events
    assert seen.asset_key.path == [name, "system"]


def test_offsets_that_are_there_before_the_first_run_are_gone_on_from(made: Made) -> None:
    made.write("a", *(f"a{i}" for i in range(5)))
    made.write("b", "b0")
    # As a worker of Connect leaves them: fields in an order of its own, and spaces.
    support.create_topic(made.broker.bootstrap, made.pipeline.offsets_topic, 1, {"cleanup.policy": "compact"})
    key = f'["{made.pipeline.name}", {{"file": "a.txt"}}]'
    producer = Producer({"bootstrap.servers": made.broker.bootstrap})
    producer.produce(made.pipeline.offsets_topic, b'{"line": 3}', key.encode())
    producer.flush()
    report = made.run()
    assert (report.ended, report.records, len(report.batches)) == ("caught up", 3, 1)
    assert Counter(made.values()) == Counter(["a3", "a4", "b0"])
    # Under the key as it was found: another would be another record to the compaction.
    assert made.offsets() == {key: {"line": 5}, made.key("b"): {"line": 1}}


def test_a_transaction_lasts_as_long_as_the_file_says(broker: Broker, tmp_path: Path) -> None:
    found = dict[str, int]()
    for boundary in ("poll", "interval"):
        (folder := tmp_path / boundary).mkdir()
        made = lines_of(broker, folder, transaction={"boundary": boundary})
        made.write("a", *(f"a{i}" for i in range(35)))
        [batch] = made.run().batches
        assert made.values() == [f"a{i}" for i in range(35)]
        found[boundary] = len(batch.sent)
    # The source gives ten lines at a time.
    assert found == {"poll": 4, "interval": 1}


def test_an_offset_that_somebody_else_wrote_stops_with_both(made: Made) -> None:
    made.write("a", *(f"a{i}" for i in range(5)))
    made.run()
    producer = Producer({"bootstrap.servers": made.broker.bootstrap})
    producer.produce(made.pipeline.offsets_topic, b'{"line":2}', made.key("a").encode())
    producer.flush()
    made.write("a", "a5")
    with raises(finding("source-offset-moved")) as raised:
        made.run()
    assert (raised.value.stored, raised.value.found) == ('{"line":5}', '{"line":2}')
    assert len(made.values()) == 5


def test_a_bad_row_without_a_topic_for_it_stops_and_nothing_is_there(made: Made) -> None:
    written = yaml.safe_load(made.file.read_text())
    del written["dead_letters"]
    made.file.write_text(yaml.safe_dump(written))
    made.write("a", "a0", "!bad")
    with raises(Code.BAD_ROW):
        made.run()
    assert made.values() == []
    assert made.offsets() == {}


def test_slots_on_spark_share_the_parts_out(made: Made, warm_spark: WarmSpark) -> None:
    written = yaml.safe_load(made.file.read_text())
    written["spark"], written["batch"] = {**warm_spark.settings, "tasks": 2}, {"spark_from_records": 0}
    made.file.write_text(yaml.safe_dump(written))
    for name in "abc":
        made.write(name, *(f"{name}{i}" for i in range(15)))
    done = calve("run", made.file, "--json")
    assert done.returncode == EXIT_DONE, done.stderr
    [batch] = json.loads(done.stdout)["batches"]
    assert (batch["slots"], batch["records"], batch["offsets_moved"]) == (2, 45, 3)
    assert Counter(made.values()) == Counter(f"{name}{i}" for name in "abc" for i in range(15))

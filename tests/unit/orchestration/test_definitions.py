"""What Dagster's own tools say of the clone's definitions, and of a `defs.yaml` with a mistake in it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from calve import build_pipeline_defs, load_pipeline
from calve.sink_core.codes import Code
from tests.codes import raises, says
from tests.documents import text

ROOT = Path(__file__).parents[3]
POST = "post_processing:"
BIN = Path(sys.executable).parent
TABLES = ("air/flights", "air/flights_dead_letters", "calve/flights_ledger")
DEFINITIONS = """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
PROJECT = """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "a_project"
"""


def run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """One of Dagster's commands in a folder whose modules it can import, without an instance of its own."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"},
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
    }
    program, *arguments = command
    return subprocess.run([BIN / program, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "command",
    [
        # Which the next does first.
        pytest.param("dg check yaml", marks=pytest.mark.faults),
        "dg check defs",
        "dagster definitions validate -w workspace.yaml",
    ],
)
def test_the_clone_passes(command: str) -> None:
    done = run(command.split(), ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    """What `dg list defs` knows of the clone."""
    done = run(["dg", "list", "defs", "--json"], ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def assets(listed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {asset["asset_key"]: asset for asset in listed["assets"]}


def test_the_assets_reach_from_the_topic_to_the_aggregate(assets: dict[str, dict[str, Any]]) -> None:
    assert {key: asset["dependency_keys"] for key, asset in assets.items()} == {
        "flights/flights_topic": [],
        "flights/flights_batches": ["flights/flights_topic"],
        **{table: ["flights/flights_batches"] for table in TABLES},
        "air/delays_by_carrier": ["air/flights"],
    }


def test_only_the_topic_is_made_elsewhere(assets: dict[str, dict[str, Any]]) -> None:
    assert [key for key, asset in assets.items() if not asset["is_executable"]] == ["flights/flights_topic"]


def test_every_asset_has_group_and_owner(assets: dict[str, dict[str, Any]]) -> None:
    assert {asset["group_name"] for asset in assets.values()} == {"air"}
    assert [key for key, asset in assets.items() if asset["owners"] != [{"team": "data"}]] == []


def test_kinds_say_what_an_asset_is(assets: dict[str, dict[str, Any]]) -> None:
    assert {key: sorted(asset["kinds"]) for key, asset in assets.items()} == {
        "flights/flights_topic": ["kafka"],
        "flights/flights_batches": ["kafka", "spark"],
        **{table: ["iceberg"] for table in TABLES},
        "air/delays_by_carrier": ["iceberg", "pyarrow"],
    }


def test_jobs_sensors_and_schedules_are_there(listed: dict[str, Any]) -> None:
    names = {kind: {found["name"] for found in listed[kind]} for kind in ("jobs", "sensors", "schedules")}
    assert {"flights_ingest_job", "flights_commit_job", "flights_checks_job"} <= names["jobs"]
    assert "flights_replay_dead_letters_job" in names["jobs"]
    assert {"flights_lag", "air_automation"} <= names["sensors"]
    assert "flights_checks_job_schedule" in names["schedules"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own with the clone's pipeline, in which a key is misspelt."""
    flights = tmp_path / "a_project" / "defs" / "flights"
    flights.mkdir(parents=True)
    for source in (ROOT / "orchestration" / "defs" / "flights").glob("*.yaml"):
        (flights / source.name).write_text(source.read_text().replace("  dead_letters:", "  dead_leters:"))
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "a_project" / "__init__.py").touch()
    (tmp_path / "a_project" / "definitions.py").write_text(DEFINITIONS)
    return tmp_path


def test_an_unknown_key_is_named_with_file_line_and_the_nearest_key(project: Path) -> None:
    file = project / "a_project" / "defs" / "flights" / "defs.yaml"
    line = file.read_text().splitlines().index("  dead_leters: {table: air.flights_dead_letters, stop_above: 5%}") + 1
    done = run(["dg", "check", "defs"], project)
    assert done.returncode == 1
    says(done.stdout + done.stderr, Code.SETTINGS, f"{file}:{line}: dead_leters: ", "dead_letters")


def test_the_schema_finds_a_wrong_value_without_loading_anything(project: Path) -> None:
    """Unknown keys it leaves to the loader, which knows what was meant."""
    file = project / "a_project" / "defs" / "flights" / "defs.yaml"
    file.write_text(file.read_text().replace("    topics: [flights]", "    topics: 5"))
    done = run(["dg", "check", "yaml"], project)
    assert done.returncode == 1
    assert "attributes.source.topics" in done.stdout
    assert "attributes.dead_leters" not in done.stdout


def test_pipelines_may_share_a_defs_yaml(project: Path) -> None:
    """Each is a document; `calve` commands take one by its name."""
    file = project / "a_project" / "defs" / "flights" / "defs.yaml"
    first = file.read_text().replace("dead_leters:", "dead_letters:")
    second = first.replace("name: flights", "name: others", 1).replace("air.", "sea.")
    file.write_text(f"{first}\n---\n{second}")
    listed = run(["dg", "list", "defs", "--json"], project)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "flights_ingest_job" in listed.stdout
    assert "others_ingest_job" in listed.stdout
    assert load_pipeline(Path(f"{file}#others")).table_names[0] == "sea.flights"
    both = f"{file}#flights, {file}#others"
    with raises(Code.WHICH_DOCUMENT, 2, both):
        load_pipeline(file)
    with raises(Code.WHICH_DOCUMENT, "third", both):
        load_pipeline(Path(f"{file}#third"))


def test_a_table_is_described_as_its_entry_says_and_as_a_subclass_wants(tmp_path: Path) -> None:
    folder = ROOT / "orchestration" / "defs" / "flights"
    said = """    - name: air.flights
      dagster:
        description: What left New York in 2013.
        owners: ["team:air"]
        tags: {domain: air}
        kinds: [iceberg, gold]
        automation: eager
"""
    file = tmp_path / "defs.yaml"
    file.write_text((folder / "defs.yaml").read_text().replace("    - name: air.flights\n", said))
    (tmp_path / "connections.yaml").write_text((folder / "connections.yaml").read_text())
    made = build_pipeline_defs(
        load_pipeline(file), asset_spec=lambda spec: spec.merge_attributes(tags={"every": "one"})
    )
    specs = {spec.key.to_user_string(): spec for spec in made.resolve_all_asset_specs()}
    table = specs["air/flights"]
    assert (table.description, list(table.owners)) == ("What left New York in 2013.", ["team:air"])
    assert table.tags.items() >= {"domain": "air", "every": "one"}.items()
    assert table.kinds == {"iceberg", "gold"}
    assert table.automation_condition == dg.AutomationCondition.eager()
    assert {spec.tags.get("every") for spec in specs.values()} == {"one"}


def test_assets_are_changed_by_post_processing_as_the_documents_show_it(project: Path) -> None:
    file = project / "a_project" / "defs" / "flights" / "defs.yaml"
    [shown] = [block for block in re.findall(r"```yaml\n(.*?)```", text("docs/dagster.md"), re.DOTALL) if POST in block]
    file.write_text(file.read_text().replace("  dead_leters:", "  dead_letters:") + shown)
    done = run(["dg", "list", "defs", "--json"], project)
    assert done.returncode == 0, done.stdout + done.stderr
    assets = json.loads(done.stdout)["assets"]
    changed = {a["asset_key"] for a in assets if {"key": "retention", "value": "90d"} in a.get("tags", [])}
    assert changed == set(TABLES)


def test_an_operators_job_has_no_other_pipelines_resources(tmp_path: Path) -> None:
    """A job with those of a hundred pipelines takes Dagster's daemon ten times as long to load."""
    folder = ROOT / "orchestration" / "defs" / "flights"
    made: list[dg.Definitions] = []
    for name in ("flights", "trains"):
        file = tmp_path / name / "defs.yaml"
        file.parent.mkdir()
        (file.with_name("connections.yaml")).write_text((folder / "connections.yaml").read_text())
        file.write_text(
            (folder / "defs.yaml").read_text().replace("name: flights", f"name: {name}").replace("air.", f"{name}.")
        )
        made.append(build_pipeline_defs(load_pipeline(file)))
    jobs = dg.Definitions.merge(*made).get_repository_def().get_all_jobs()
    given = {job.name: {key for key in job.resource_defs if key.endswith("_spark")} for job in jobs}
    alone = {
        name: keys for name, keys in given.items() if not name.endswith(("_ingest_job", "_commit_job", "_checks_job"))
    }
    alone.pop("__ASSET_JOB")
    assert {name: keys for name, keys in alone.items() if keys != {f"{name.partition('_')[0]}_spark"}} == {}
    assert len(alone) > 20

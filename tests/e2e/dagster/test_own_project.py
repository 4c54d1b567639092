"""Calve's wheel in a fresh `create-dagster` project: a scaffolded `defs.yaml`, the tools' checks, a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from tests import support
from tests.codes import says
from tests.e2e.dagster.stack import BIN, ROOT
from tests.gate import only
from tests.pipelines import Flow, record
from tests.support import TopicFactory

PACKAGES = ("sink_core", "spark_jobs", "orchestration")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and unpacked to a folder of its own."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = directory / "sources"
    sources.mkdir()
    for package in ("calve", *PACKAGES):
        shutil.copytree(ROOT / package, sources / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, sources)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", directory, sources], directory, {})
    wheel = next(directory.glob("calve-*.whl"))
    run([*pip, "install", "--no-deps", "--no-index", "--target", directory / "site", wheel], directory, {})
    return directory / "site"


@pytest.mark.parametrize(
    ("named", "pipeline"), only([("orchestration", "sales")], of=[("shop", "orders"), ("orchestration", "sales")])
)
def test_a_pipeline_runs_in_a_project_of_the_users_own(
    named: str, pipeline: str, installed: Path, tmp_path: Path, broker: Broker, kafka_topic: TopicFactory
) -> None:
    run([BIN / "create-dagster", "project", named, "--no-uv-sync"], tmp_path, {})
    project = tmp_path / named
    topic = kafka_topic(1)
    support.produce(broker.bootstrap, topic, map(record, range(50)))
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (installed, project / "src"))),
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "DAGSTER_HOME": str(tmp_path / "home"),
    }
    (tmp_path / "home").mkdir()
    shutil.copy(ROOT / "deploy" / "dagster.yaml", tmp_path / "home")

    found = run(
        [sys.executable, "-c", "import calve.orchestration; print(calve.orchestration.__path__[0])"],
        project,
        environment,
    )
    assert found.strip() == str(installed / "calve" / "orchestration")
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"bin", "calve"}
    assert not (installed / "calve" / "orchestration" / "defs").exists()
    assert all((installed / "calve" / package / "py.typed").is_file() for package in ("", *PACKAGES))
    [about] = installed.glob("calve-*.dist-info")
    assert "License-Expression: Apache-2.0" in (about / "METADATA").read_text()
    assert "Apache License" in (about / "licenses" / "LICENSE").read_text()
    assert "calve.KafkaIcebergPipeline" in run([BIN / "dg", "list", "components"], project, environment)
    scaffold = [BIN / "dg", "scaffold", "defs", "calve.KafkaIcebergPipeline", pipeline, "--topic"]
    refused = subprocess.run(
        [*scaffold, topic], cwd=project, env={**os.environ, **environment}, capture_output=True, text=True
    )
    says(refused.stderr, Code.OPTION, "--bootstrap")
    assert "Traceback" not in refused.stderr
    run([*scaffold, topic, "--bootstrap", broker.bootstrap, "--table", "shop.orders"], project, environment)
    run([BIN / "dg", "check", "yaml"], project, environment)
    run([BIN / "dg", "check", "defs"], project, environment)
    listed = run([BIN / "dg", "list", "defs", "--json"], project, environment)
    assert all(f"{pipeline}/{asset}" in listed for asset in (f"{pipeline}_batches", f"{topic.replace('-', '_')}_topic"))
    run([BIN / "dg", "launch", "--job", f"{pipeline}_ingest_job"], project, environment)
    with closing(support.open_catalog(project / "lake", "lake")) as lake:
        rows = lake.load_table("shop.orders").scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(50))


def test_a_misspelt_key_is_named_with_its_line(installed: Path, tmp_path: Path, broker: Broker) -> None:
    run([BIN / "create-dagster", "project", "shop", "--no-uv-sync"], tmp_path, {})
    project = tmp_path / "shop"
    file = as_component(Flow.create(tmp_path, broker.bootstrap, "nothing"), project)
    file.write_text(file.read_text().replace("  source:", "  sorce:"))
    environment = {
        "PYTHONPATH": os.pathsep.join(map(str, (installed, project / "src"))),
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [BIN / "dg", "check", "defs"], cwd=project, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "sorce" in said
    assert "source" in said.replace("sorce", "")
    assert f"{file}:" in said.replace("\n", "")


def as_component(flow: Flow, project: Path) -> Path:
    """The pipeline as a component of the project, its connections at the project's root; the `defs.yaml`."""
    attributes = yaml.safe_load(flow.pipeline.path.read_text())
    shutil.copy(flow.pipeline.path.with_name("connections.yaml"), project)
    file = project / "src" / "shop" / "defs" / flow.name / "defs.yaml"
    file.parent.mkdir(parents=True)
    document = {"type": "calve.KafkaIcebergPipeline", "attributes": attributes}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def run(command: list[str | Path], directory: Path, environment: Mapping[str, str]) -> str:
    """What a command printed; fails with all of it."""
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout

"""A kind that is registered is a kind everywhere: in files, commands, documents and Dagster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from typer.testing import CliRunner, Result

from calve import KafkaIcebergPipeline, KafkaMirror, KafkaSource, build_pipeline_defs, load_pipeline
from calve.orchestration.cli.main import app
from calve.orchestration.dagster import kinds
from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG
from calve.orchestration.dagster.sensor import REASON_TAG
from calve.sink_core.codes import Code
from calve.sink_core.config import kinds as registry
from calve.sink_core.config.document import documents
from calve.sink_core.config.references import HIDDEN
from calve.sink_core.errors import EXIT_BAD_INPUT
from tests import toy_kind
from tests.codes import names, says

CONNECTIONS = {"deployment": "dev", "kafka": {"main": {"bootstrap.servers": "b:9092", "sasl.password": "open sesame"}}}
TOY = {"name": "letters", "kind": "toy", "kafka": "main", "reads": "in.txt", "writes": "out.txt"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a toy with two lines to copy."""
    toy_kind.register(monkeypatch)
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
    (tmp_path / "in.txt").write_text("a\nb\n")
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(TOY, sort_keys=False))
    return tmp_path / "toy.yaml"


def calve(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_dagster_knows_the_kinds_that_there_are() -> None:
    assert kinds.KINDS.keys() == registry.KINDS.keys()


def test_its_file_is_shown_as_it_takes_effect(file: Path) -> None:
    shown = json.loads(calve("config", file, "--json").stdout)
    assert list(shown["pipeline"])[:6] == ["name", "kind", "kafka", "reads", "writes", "trigger"]
    assert shown["pipeline"]["trigger"]["every"] == "1m"
    assert shown["connections"]["kafka"] == {"main": {"bootstrap.servers": "b:9092", "sasl.password": HIDDEN}}
    assert shown["derived"]["control_topic"] == "calve.dev.letters.control"


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("reads", "raeds", ["toy.yaml:4: raeds: ", "reads"]),
        ("kafka: main", "kafka: mian", ["toy.yaml:3: kafka: ", "connections.yaml", "'mian'"]),
        ("kind: toy", "kind: tow", ["toy.yaml:2: kind: ", "'tow'", "mirror, sink, source, toy"]),
    ],
)
def test_a_mistake_in_its_file_is_named_as_any_other_is(file: Path, before: str, after: str, named: list[str]) -> None:
    file.write_text(file.read_text().replace(before, after))
    refused = calve("config", file)
    assert refused.exit_code == EXIT_BAD_INPUT
    says(refused.stderr, Code.SETTINGS, *named)


def test_schema_and_reference_have_it_beside_the_others(file: Path) -> None:
    written = documents()
    assert [named["$ref"] for named in json.loads(written["pipeline.schema.json"])["anyOf"]] == [
        "#/$defs/SinkConfig",
        "#/$defs/MirrorConfig",
        "#/$defs/SourceConfig",
        "#/$defs/ToyConfig",
    ]
    page = written["reference.md"]
    assert page.index("## Pipeline file of a sink") < page.index("## Pipeline file of a toy")
    assert "| `reads` | text | required | The file that is read," in page


def test_a_component_shows_the_schema_of_its_kind_alone() -> None:
    for component, wanted in (
        (KafkaIcebergPipeline, "SinkConfig"),
        (KafkaMirror, "MirrorConfig"),
        (KafkaSource, "SourceConfig"),
    ):
        schema = component.attributes.model_json_schema()
        assert schema["$ref"] == f"#/$defs/{wanted}"
        assert "ToyConfig" not in schema["$defs"]
    assert "kind" in KafkaMirror.attributes.model_json_schema()["$defs"]["MirrorConfig"]["required"]
    assert "kind" not in KafkaIcebergPipeline.attributes.model_json_schema()["$defs"]["SinkConfig"]["required"]


def test_its_sensor_starts_the_run_that_moves_what_is_pending(file: Path) -> None:
    made = build_pipeline_defs(load_pipeline(file))
    sensor = made.get_repository_def().get_sensor_def("letters_lag")
    job = made.resolve_job_def("letters_copy_job")
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance) as context:
        [asked] = sensor.evaluate_tick(context).run_requests
        names(asked.tags[REASON_TAG], 2)
        assert {(PIPELINE_TAG, "letters"), (STAGE_TAG, "copy")} <= job.tags.items()
        assert job.execute_in_process(instance=instance).success
        assert file.with_name("out.txt").read_text() == "a\nb\n"
        caught_up = sensor.evaluate_tick(context)
        assert not caught_up.run_requests
        assert caught_up.skip_message


OF_EACH_KIND: dict[str, dict[str, Any]] = {
    "sink": {"source": {"kafka": "main", "topics": ["t"]}, "catalog": "lake", "tables": [{"name": "a.b"}]},
    "mirror": {"source": {"kafka": "main", "topics": ["t"]}, "target": {"kafka": "us"}},
    "source": {
        "source": {"files": {"path": "in", "format": "json_lines", "topic": "t"}},
        "target": {"kafka": "main"},
    },
}
LOOKS = {"verify", "positions", "dead_letters"}


@pytest.mark.parametrize("kind", OF_EACH_KIND)
def test_a_file_leaves_the_operators_jobs_out_of_dagster(kind: str, tmp_path: Path) -> None:
    kafka = {"main": {"bootstrap.servers": "b:9092"}, "us": {"bootstrap.servers": "u:9092"}}
    catalog = {"lake": {"type": "sql", "uri": "sqlite://", "warehouse": "w"}}
    shared = {"deployment": "dev", "kafka": kafka, "catalog": catalog}
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(shared))

    def jobs(**settings: Any) -> set[str]:
        file = tmp_path / "p.yaml"
        file.write_text(yaml.safe_dump({"name": "p", "kind": kind, **OF_EACH_KIND[kind], "dagster": settings}))
        made = build_pipeline_defs(load_pipeline(file)).get_repository_def()
        return {job.name.removeprefix("p_").removesuffix("_job") for job in made.get_all_jobs()}

    whole, narrow = jobs(), jobs(operations=False)
    by_hand = {"pause", "resume", "resolve", "replay", "replay_hours", "replay_dead_letters"}
    assert whole - narrow == whole & by_hand
    assert {"pause", "resume"} <= whole - narrow
    assert narrow & LOOKS == whole & LOOKS

"""The documents say what the code does: names, commands, files and examples in them are held to it."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
import typer

from calve.orchestration.cli.main import app
from calve.sink_core.config.load import load
from calve.sink_core.config.mirror_pipeline import MirrorPipeline
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.control import schemas
from calve.sink_core.mirror.state import MIRROR
from calve.sink_core.tables.log.fold import SINK
from tests.documents import DAGSTER, ROOT, section, sources, table_rows, text, with_checks

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/dagster.md",
    "docs/design.md",
    "docs/errors.md",
    "docs/events.md",
    "docs/findings.md",
    "docs/formats.md",
    "docs/hudi.md",
    "docs/mirror.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/reference.md",
    "docs/reliability.md",
    "docs/row_changes.md",
    "docs/tables.md",
    "docs/terms.md",
    "docs/transforms.md",
)
OTHER_PROGRAMS = {"dg", "export"}
"""What shell blocks may use besides `make` and `calve`; the test of a project of its own scaffolds by `dg`."""


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(document), re.MULTILINE | re.DOTALL)


def anchors(file: Path) -> set[str]:
    """What links to headings of a document end with, as GitHub makes it of them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines() -> list[tuple[str, list[str]]]:
    lines = [(name, line) for name in DOCUMENTS for block in blocks(name, "sh") for line in block.splitlines()]
    return [(name, shlex.split(line, comments=True)) for name, line in lines if line.strip()]


def inline_calve(document: str) -> set[str]:
    """Commands such as `calve run FILE` that stand in a sentence or a table."""
    return set(re.findall(r"`calve ([a-z][^`]*)`", text(document)))


def command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` name, and what is left of them; fails if there is none."""
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        assert words, f"{found.name}: which command?"
        assert words[0] in found.commands, f"calve has no command {words[0]}; it has {sorted(found.commands)}"
        found, words = found.commands[words[0]], words[1:]
    return found, words


def calls(*names: str) -> Iterator[ast.Call]:
    for module in sources().values():
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and node.args:
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in names:
                    yield node


def first_texts(*names: str, argument: int = 0) -> set[str]:
    """The literal at `argument` of every call of `names` that has one there."""
    found = (call.args[argument] for call in calls(*names) if len(call.args) > argument)
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize(("document", "words"), shell_lines(), ids=lambda value: " ".join(value) if value else "")
def test_each_command_in_a_shell_block_exists(document: str, words: list[str]) -> None:
    program, *rest = words
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
        assert {w for w in rest if "=" not in w} <= targets, document
    elif program == ".venv/bin/calve":
        found, arguments = command(rest)
        options = {option for parameter in found.params for option in parameter.opts}
        assert {a.partition("=")[0] for a in arguments if a.startswith("--")} <= options, document
    elif program == ".venv/bin/python":
        assert rest[0] == "-m"
        assert importlib.util.find_spec(rest[1]), document
    else:
        assert program in OTHER_PROGRAMS, document


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_calve_command_in_a_sentence_exists(document: str) -> None:
    for words in inline_calve(document):
        command(words.split())


def test_the_readme_lists_every_command() -> None:
    listed = {words.split()[0] for words in inline_calve("README.md")}
    root: Any = typer.main.get_command(app)
    assert set(root.commands) <= listed


def test_every_command_takes_json_as_the_readme_says() -> None:
    assert "Every command takes `--json`" in text("README.md")
    without = [words for words in inline_calve("README.md") if not _takes_json(command(words.split())[0])]
    assert without == []


def test_the_pipeline_in_the_readme_is_valid(tmp_path: Path) -> None:
    pipeline, connections, _, source, its_connections = blocks("README.md", "yaml")
    (tmp_path / "pipeline.yaml").write_text(pipeline)
    (tmp_path / "connections.yaml").write_text(connections)
    assert load(tmp_path / "pipeline.yaml").table_names[0] == "shop.orders"
    (tmp_path / "source.yaml").write_text(source)
    (tmp_path / "connections.yaml").write_text(its_connections)
    assert isinstance(load(tmp_path / "source.yaml"), SourcePipeline)


@pytest.mark.parametrize("document", ["docs/mirror.md", "README.md"])
def test_the_mirrors_in_documents_are_valid(document: str, tmp_path: Path) -> None:
    files = [block for block in blocks(document, "yaml") if "kind: mirror" in block]
    connections = next(block for block in blocks("docs/mirror.md", "yaml") if "deployment:" in block)
    (tmp_path / "connections.yaml").write_text(connections)
    assert files
    for file in files:
        (tmp_path / "mirror.yaml").write_text(file)
        assert isinstance(load(tmp_path / "mirror.yaml"), MirrorPipeline)


def test_the_demo_pipeline_is_valid() -> None:
    assert load(ROOT / "orchestration/defs/flights/defs.yaml").table_names[0] == "air.flights"


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_links_lead_to_files(document: str) -> None:
    folder = (ROOT / document).parent
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text(document))
    assert [link for link, _ in links if not (folder / link).exists()] == []
    anchored = [(folder / link if link else ROOT / document, anchor) for link, anchor in links if anchor]
    assert [(str(file), anchor) for file, anchor in anchored if anchor not in anchors(file)] == []


def test_every_crash_point_has_a_row_and_every_row_is_a_crash_point() -> None:
    rows = {row[0].strip("` ") for row in table_rows(section("docs/design.md", "Crash points"))[2:]}
    assert rows == first_texts("reach")


def test_the_tables_of_checks_are_as_written() -> None:
    assert with_checks(text(DAGSTER)) == text(DAGSTER), "run `python -m tests.documents`"


def test_every_violation_has_a_row() -> None:
    rows = table_rows(section("docs/operations.md", "Violations"))
    documented = {name for row in rows for name in re.findall("`([a-z-]+)`", row[0])}
    kinds = re.compile(r"[a-z]+(-[a-z]+)+")
    rooms = ("sink_core/sink/verify/", "sink_core/sink/ledger/", "sink_core/iceberg/verify/", "sink_core/hudi/verify/")
    rooms = (*rooms, "sink_core/tables/history/contents.py")
    modules = [module for path, module in sources().items() if path.startswith(rooms)]
    texts = {n.value for m in modules for n in ast.walk(m) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    assert documented == {t for t in texts if kinds.fullmatch(t)} - {"total-records"}


def _takes_json(found: Any) -> bool:
    return any("--json" in parameter.opts for parameter in found.params)


EVENTS = MIRROR.schemas | SINK.schemas
"""By name; a `CHECKPOINT` is the sink's."""


@pytest.mark.parametrize("event", EVENTS)
def test_every_field_of_an_event_is_documented(event: str) -> None:
    common = {"event_id", "pipeline_id", "written_at_ms", "calve_version"}
    own = section("docs/events.md", event).split("\n### ")[0]
    documented = [row[0].strip("`") for row in table_rows(own)[2:]]
    assert documented == [field["name"] for field in EVENTS[event]["fields"] if field["name"] not in common]


def test_every_field_of_a_mirror_s_checkpoint_is_documented() -> None:
    core = {field["name"] for field in schemas.of_event("CHECKPOINT", schemas.CHECKPOINT)["fields"]}
    documented = [row[0].strip("`") for row in table_rows(section("docs/events.md", "CHECKPOINT of a mirror"))[3:]]
    assert documented == [f["name"] for f in MIRROR.schemas["CHECKPOINT"]["fields"] if f["name"] not in core]


NESTED = ("CopiedRange", "ManifestRef", "PartitionSummary", "Resolves", "Replaces", "RangeRead", "RangeJob")


@pytest.mark.parametrize("record", NESTED)
def test_every_field_of_a_nested_record_is_documented(record: str) -> None:
    documented = [row[0].strip("`") for row in table_rows(section("docs/events.md", record))[2:]]
    assert documented == [field["name"] for field in _nested(list(EVENTS.values()), record)["fields"]]


@pytest.mark.parametrize("event", EVENTS)
def test_every_example_is_an_event(event: str) -> None:
    common, own = (json.loads(first_json(title)) for title in ("Every event", event))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(EVENTS[event]), {**common, **own}, strict=True)
    assert out.getvalue()


def first_json(title: str) -> str:
    found = re.search(r"^```json\n(.*?)^```$", section("docs/events.md", title), re.MULTILINE | re.DOTALL)
    assert found, f"{title} has no example"
    return found[1]


def _nested(schema: Any, name: str) -> dict[str, Any]:
    """The record `name` within an Avro schema."""
    if isinstance(schema, list):
        return next((found for part in schema if (found := _nested(part, name))), {})
    if not isinstance(schema, dict):
        return {}
    if schema.get("name") == name:
        return schema
    inner = [schema.get("type"), schema.get("items"), *schema.get("fields", [])]
    return _nested([part for part in inner if not isinstance(part, str)], name)

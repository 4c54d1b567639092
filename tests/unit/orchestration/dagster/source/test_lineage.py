"""A source and the sink behind it: one lineage from the database to the Iceberg tables."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml

from calve.sink_core.codes import Code
from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from calve.sink_core.source.scaffold import source_text
from tests.codes import names, raises


@pytest.fixture
def definitions(monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """Of both files, which nothing has to answer for."""
    for name in ("POSTGRES", "KAFKA", "LAKE"):
        monkeypatch.setenv(f"CALVE_DEMO_{name}", "/nowhere")
    from tests.e2e.dagster.bank_defs import defs

    return defs


def upstream(definitions: dg.Definitions, key: dg.AssetKey) -> set[str]:
    """All that an asset follows from."""
    graph, found, left = definitions.resolve_asset_graph(), set[dg.AssetKey](), [key]
    while left:
        new = graph.get(left.pop()).parent_keys - found
        found |= new
        left += new
    return {"/".join(each.path) for each in found}


def test_a_table_follows_from_the_database_by_topics(definitions: dg.Definitions) -> None:
    found = upstream(definitions, dg.AssetKey(["bank", "accounts"]))
    assert {
        "bank_log/system",
        "bank_log/public_accounts_table",
        "bank_log/copy",
        "bank_log/pg.public.accounts",
        "bank/pg_public_accounts_topic",
    } <= found


def test_what_is_named_is_an_asset_and_not_a_stub(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    described = {"/".join(key.path): graph.get(key).description for key in graph.get_all_asset_keys()}
    names(described["bank_log/public_accounts_table"] or "", "public.accounts", "pg.public.accounts")
    names(described["bank_log/pg.public.accounts"] or "", "pg.public.accounts", "main")


def test_a_scaffolded_file_can_be_loaded(tmp_path: Path) -> None:
    connections = {
        "deployment": "test",
        "kafka": {"main": {"bootstrap.servers": "nowhere:1"}},
        "database": {"bank": {"url": "postgresql://nowhere/bank"}},
    }
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(connections))
    (tmp_path / "new.yaml").write_text(source_text("new", "bank", "main", ["public.a", "public.b"], "all_of_it"))
    made = load_as(SourcePipeline, tmp_path / "new.yaml")
    assert made.tables == {"public.a": "new.public.a", "public.b": "new.public.b"}
    with raises(Code.SETTINGS, "tables"):
        source_text("new", "bank", "main", ["nothing"], "all_of_it")

"""A mirror as Dagster loads it: without a look at Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from calve import build_pipeline_defs, load_pipeline
from calve.sink_core.codes import Code
from calve.sink_core.mirror.scaffold import mirror_text
from tests.codes import raises

CONNECTIONS = {
    "deployment": "dev",
    "kafka": {"eu": {"bootstrap.servers": "${ENV:NOT_SET}"}, "us": {"bootstrap.servers": "${ENV:NOT_SET}"}},
}


def made(folder: Path, **source: Any) -> dg.Definitions:
    file = folder / "mirror.yaml"
    (folder / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
    written = {"name": "m", "kind": "mirror", "source": {"kafka": "eu", **source}, "target": {"kafka": "us"}}
    file.write_text(yaml.safe_dump(written))
    return build_pipeline_defs(load_pipeline(file))


def test_source_topics_lead_over_the_copy_to_remote_topics(tmp_path: Path) -> None:
    defs = made(tmp_path, topics=["shop.orders", "returns"], topics_regex="clicks.*", fed_by=["before"])
    specs = {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}
    deps = {key: {dep.asset_key.to_user_string() for dep in spec.deps} for key, spec in specs.items()}
    read = {"m/shop_orders_topic", "m/returns_topic", "m/matching_topics"}
    assert deps == {
        "m/shop_orders_topic": {"before/shop.orders", "before/copy"},
        "m/returns_topic": {"before/returns", "before/copy"},
        "m/matching_topics": {"before/copy"},
        "m/copy": read,
        "m/eu.shop.orders": {"m/copy"},
        "m/eu.returns": {"m/copy"},
        # Stubs, of a pipeline that is not loaded here.
        **{stub: set[str]() for stub in ("before/copy", "before/returns", "before/shop.orders")},
    }


def test_what_a_mirror_found_by_a_pattern_leads_on_to_who_reads_it(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    first = made(tmp_path / "first", topics_regex="shop.*")
    file = tmp_path / "next.yaml"
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
    source = {"kafka": "us", "topics": ["eu.shop.orders"], "fed_by": ["m"]}
    file.write_text(yaml.safe_dump({"name": "n", "kind": "mirror", "source": source, "target": {"kafka": "eu"}}))
    graph = dg.Definitions.merge(first, build_pipeline_defs(load_pipeline(file))).get_repository_def().asset_graph
    above = {key.to_user_string() for key in graph.get_ancestor_asset_keys(dg.AssetKey(["n", "copy"]))}
    assert {"m/matching_topics", "m/copy", "n/eu_shop_orders_topic"} <= above


def test_it_has_the_jobs_of_every_kind_and_none_of_a_sink_alone(tmp_path: Path) -> None:
    jobs = {job.name for job in made(tmp_path, topics=["orders"]).get_repository_def().get_all_jobs()}
    stages = ("copy", "checks", "pause", "resume", "resolve", "verify", "positions", "trim", "keep_alive")
    assert jobs - {"__ASSET_JOB"} == {f"m_{stage}_job" for stage in stages}


def test_remote_topics_that_dagster_can_not_tell_apart_are_refused(tmp_path: Path) -> None:
    with raises(Code.DAGSTER_NAMES, "eu.a_b", "eu.a-b"):
        made(tmp_path, topics=["a-b", "a_b"])


def test_a_scaffolded_file_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
    (tmp_path / "new.yaml").write_text(mirror_text("new", "eu", "us", ["a", "b.c"]))
    assert load_pipeline(tmp_path / "new.yaml").kind == "mirror"
    with raises(Code.SETTINGS, "topics"):
        mirror_text("new", "eu", "us", ["no topic"])

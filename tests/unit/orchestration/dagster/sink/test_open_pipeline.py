"""A pipeline whose topics and tables are found at run time, as Dagster loads it: without a look at Kafka."""

import dagster as dg

from calve.orchestration.dagster.build import build_pipeline_defs
from calve.orchestration.dagster.common.topics import pattern_key
from calve.orchestration.dagster.sink.names import batches_key
from calve.sink_core.config.load import load
from tests.documents import ROOT

SHOP = ROOT / "examples/shop/pipeline.yaml"


def test_one_asset_stands_for_all_topics_that_match() -> None:
    pipeline = load(SHOP)
    defs = build_pipeline_defs(pipeline)
    specs = {spec.key: spec for spec in defs.resolve_all_asset_specs()}
    assert {key.to_user_string() for key in specs} == {
        "shop/matching_topics",
        "shop/shop_batches",
        "shop/clicks",
        "shop/eu_orders",
        "calve/shop_ledger",
        "calve/shop_dead_letters",
    }
    assert [dep.asset_key for dep in specs[batches_key(pipeline)].deps] == [pattern_key(pipeline)]
    assert isinstance(defs, dg.Definitions)

"""The shop of `examples/shop`: twelve topics by pattern, tables by topic, field and value, on Spark."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from calve.orchestration.local.broker import Broker
from calve.sink_core.config.connections import SparkSettings
from calve.sink_core.config.load import load
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.run import run_pipeline
from calve.sink_core.sink.verify.proof import verify
from calve.spark_jobs.engine import SparkEngine
from tests import support

SHOP = Path(__file__).parents[2] / "examples/shop"
RECORDS = 100


def _produce() -> Any:
    spec = importlib.util.spec_from_file_location("shop_produce", SHOP / "produce.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shop(tmp_path: Path, broker: Broker, spark: SparkSession) -> None:
    assert spark is not None
    produce = _produce()
    produce.fill(broker.bootstrap, RECORDS)
    connections = {
        "deployment": support.unique("shop"),
        "kafka": {"main": {"bootstrap.servers": broker.bootstrap}},
        "catalog": {"lake": {"type": "sql", **support.catalog_properties(tmp_path / "lake")}},
        "spark": {"small": {"master": "local[2]"}},
    }
    (tmp_path / "connections.yaml").write_text(json.dumps(connections))
    pipeline = load(SHOP / "pipeline.yaml", tmp_path / "connections.yaml")
    with (
        SparkEngine(SparkSettings(master="local[2]", tasks=2)) as engine,
        Session.open(pipeline, engine=engine) as session,
    ):
        report = run_pipeline(session)
        proof = verify(session, deep=True)
    assert not proof.violations
    broken = RECORDS // produce.BROKEN_EVERY
    assert sum(batch.dead_lettered for batch in report.batches) == broken * len(produce.ENTITIES)
    with closing(support.open_catalog(tmp_path / "lake", "lake")) as catalog:
        rows = {
            f"{namespace}.{name}": catalog.load_table((namespace, name)).scan().to_arrow().to_pylist()
            for namespace in ("shop", "clicks")
            for _, name in catalog.list_tables(namespace)
        }
    assert set(rows) == {
        *(f"shop.{entity}" for entity in produce.ENTITIES),
        *(f"clicks.{kind}" for kind in ("view", "buy", "share")),
        "shop.eu_orders",
    }
    assert {len(rows[f"shop.{entity}"]) for entity in produce.ENTITIES} == {RECORDS - broken}
    kinds = Counter(row["kind"] for row in rows["shop.clicks"])
    for kind in ("view", "buy", "share"):
        assert {row["kind"] for row in rows[f"clicks.{kind}"]} == {kind}
        assert len(rows[f"clicks.{kind}"]) == kinds[kind]
    in_eu = [row["id"] for row in rows["shop.orders"] if row["ship_to"]["region"].startswith("eu-")]
    assert sorted(row["id"] for row in rows["shop.eu_orders"]) == sorted(in_eu)

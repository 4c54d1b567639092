"""What has no meaning for a Hudi table is refused when the file is read, with the setting named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.config.files import Load, refused

HUDI = {"warehouse": "/data/hudi"}
UPSERT = {"mode": "upsert", "key": ["id"], "on_moved_key": "ignore"}


def table(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "air.flights", "format": "hudi", **more}]


def test_a_hudi_table_needs_little(loaded: Load) -> None:
    pipeline = loaded(hudi=HUDI, tables=table(hudi={"type": "merge_on_read"}))
    [settings] = pipeline.tables
    assert (settings.format, settings.hudi_type) == ("hudi", "merge_on_read")
    assert pipeline.hudi is not None
    assert pipeline.hudi.warehouse == "/data/hudi"
    assert pipeline.describe()["connections"]["hudi"] == {"inline": {**HUDI, "spark": {}}}
    assert pipeline.format_of(pipeline.ledger_table) == "iceberg"


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        (table(mode="upsert", key=["id"]), ["tables.0.on_moved_key", "ignore"]),
        (table(**UPSERT, write_mode="merge"), ["tables.0.write_mode", "hudi.type"]),
        (
            table(mode="upsert", key=["id"], order_by="at.ms"),
            ["tables.0.order_by"],
        ),
        (table(kafka_column=False), ["tables.0.kafka_column", "_kafka"]),
        (table(evolve=["widen"]), ["tables.0.evolve", "widen"]),
        (table(auto_create={"sort_order": ["id"]}), ["tables.0.auto_create.sort_order"]),
        (table(auto_create={"location": "/x"}), ["tables.0.auto_create.location"]),
        (table(auto_create={"properties": {"a": "b"}}), ["tables.0.auto_create.properties"]),
        (table(auto_create={"identifier_fields": ["id"]}), ["tables.0.auto_create.identifier_fields"]),
        (
            table(auto_create={"partition_by": ["day(at)"]}),
            ["tables.0.auto_create.partition_by.0"],
        ),
        ([{"name": "air.flights", "hudi": {"type": "merge_on_read"}}], ["tables.0.hudi", "format: hudi"]),
    ],
)
def test_what_has_no_meaning_is_refused(loaded: Load, tables: list[dict[str, Any]], named: list[str]) -> None:
    with refused("pipeline.yaml", *named):
        loaded(hudi=HUDI, tables=tables)


def test_where_the_tables_are_must_be_said(loaded: Load) -> None:
    with refused("pipeline.yaml", "hudi", "air.flights"):
        loaded(tables=table())


def test_records_may_change_its_rows(loaded: Load) -> None:
    hudi = {**HUDI, "spark": {"spark.driver.memory": "2g"}}
    pipeline = loaded(hudi=hudi, tables=table(**UPSERT, kafka_column=False))
    [settings] = pipeline.tables
    assert settings.changes_rows
    assert pipeline.hudi is not None
    assert pipeline.hudi.spark == {"spark.driver.memory": "2g"}


def test_values_that_were_not_sent_are_not_kept(loaded: Load) -> None:
    settings = {"mode": "cdc", "key": ["id"], "on_moved_key": "ignore", "unavailable_value": "keep-old"}
    with refused("pipeline.yaml", "tables.0.unavailable_value"):
        loaded(hudi=HUDI, tables=table(**settings))

"""What has no meaning for a Hudi table is refused when the file is read, with the setting named."""

from __future__ import annotations

from typing import Any

import pytest

from calve.sink_core.error_codes.files import SETTINGS
from calve.sink_core.errors import ConfigError
from tests.codes import raises
from tests.unit.config.files import Load

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
    ("tables", "says"),
    [
        (table(mode="upsert", key=["id"]), r"tables\.0\.on_moved_key: a Hudi table's rows are not looked at"),
        (table(**UPSERT, write_mode="merge"), r"tables\.0\.write_mode: Hudi brings changes into its tables itself"),
        (
            table(mode="upsert", key=["id"], order_by="at.ms"),
            r"order_by: the ordering field of a Hudi table is a column",
        ),
        (table(kafka_column=False), r"tables\.0\.kafka_column: a Hudi table needs the column _kafka"),
        (table(evolve=["widen"]), r"tables\.0\.evolve: a Hudi table is only given columns: leave out widen"),
        (table(auto_create={"sort_order": ["id"]}), r"auto_create\.sort_order: .* clustering sorts them"),
        (table(auto_create={"location": "/x"}), r"auto_create\.location: a Hudi table is where its name says"),
        (table(auto_create={"properties": {"a": "b"}}), r"auto_create\.properties: these are Iceberg's"),
        (table(auto_create={"identifier_fields": ["id"]}), r"auto_create\.identifier_fields: .* by its Kafka position"),
        (
            table(auto_create={"partition_by": ["day(at)"]}),
            r"partition_by\.0: a Hudi table is partitioned",
        ),
        ([{"name": "air.flights", "hudi": {"type": "merge_on_read"}}], r"tables\.0\.hudi: goes with format: hudi"),
    ],
)
def test_what_has_no_meaning_is_refused(loaded: Load, tables: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        loaded(hudi=HUDI, tables=tables)


def test_where_the_tables_are_must_be_said(loaded: Load) -> None:
    with raises(SETTINGS, "hudi", "air.flights"):
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
    with raises(SETTINGS, "unavailable_value"):
        loaded(hudi=HUDI, tables=table(**settings))

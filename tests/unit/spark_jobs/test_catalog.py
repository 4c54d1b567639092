"""What Spark is told of a catalog that pyiceberg knows by an address of SQLAlchemy's."""

from __future__ import annotations

import pytest

from calve.sink_core.config.effective import CatalogSettings
from calve.spark_jobs.catalog import spark_settings


@pytest.mark.parametrize(
    ("uri", "jdbc", "user", "password"),
    [
        ("postgresql+psycopg2://ann:p%40ss@db:5433/lake", "jdbc:postgresql://db:5433/lake", "ann", "p@ss"),
        ("postgresql+psycopg://ann@db/lake?sslmode=require", "jdbc:postgresql://db/lake?sslmode=require", "ann", None),
        ("mysql+pymysql://ann:x@[::1]:3306/lake", "jdbc:mysql://[::1]:3306/lake", "ann", "x"),
        ("sqlite:////tmp/lake.db", "jdbc:sqlite:/tmp/lake.db", None, None),
    ],
)
def test_the_address_of_a_sql_catalog_has_neither_user_nor_password(
    uri: str, jdbc: str, user: str | None, password: str | None
) -> None:
    settings = spark_settings(CatalogSettings("lake", {"type": "sql", "uri": uri, "warehouse": "file:///w"}, {}))
    found = [settings.get(f"spark.sql.catalog.lake.{key}") for key in ("uri", "jdbc.user", "jdbc.password")]
    assert found == [jdbc, user, password]

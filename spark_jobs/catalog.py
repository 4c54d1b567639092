"""The pipeline's catalog as Spark sees it: Iceberg's Java settings derived from pyiceberg's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import URL, make_url

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mysql"}
# pyiceberg's own, without a meaning for Java.
_PYTHON_ONLY = ("py-", "echo", "pool_", "init_catalog_tables", "downcast-", "pyarrow.")


def attach(session: SparkSession, catalog: CatalogSettings) -> None:
    """Make the catalog known to `session` under its name. A session keeps a catalog as it first saw it."""
    for key, value in spark_settings(catalog).items():
        session.conf.set(key, value)


def spark_settings(catalog: CatalogSettings) -> dict[str, str]:
    """Spark's settings for the catalog, references resolved; what stands under its `spark` wins.

    Raises ConfigError for a catalog from which they can't be derived.
    """
    prefix, own = f"spark.sql.catalog.{catalog.name}", resolve(catalog.spark)
    derived = {} if {"catalog-impl", "type"} & own.keys() else _derived(catalog.name, resolve(catalog.properties))
    # What pyiceberg commits is seen at once.
    settings = {"cache-enabled": "false", **derived, **{key: _as_text(value) for key, value in own.items()}}
    implementation = "org.apache.iceberg.spark.SparkCatalog"
    return {prefix: implementation, **{f"{prefix}.{key}": value for key, value in settings.items()}}


def _derived(name: str, properties: Mapping[str, Any]) -> dict[str, str]:
    kind = str(properties.get("type", ""))
    shared = {
        key: _as_text(value)
        for key, value in properties.items()
        if key not in ("type", "uri") and not key.startswith(_PYTHON_ONLY) and not isinstance(value, dict | list)
    }
    match kind:
        case "sql":
            return {**_storage(shared), **_jdbc(name, str(properties["uri"]))}
        case "rest" | "hive":
            return {**_storage(shared), "type": kind, "uri": str(properties["uri"])}
        case "glue":
            return {**_storage(shared), "type": kind}
        case _:
            raise ConfigError(
                f"catalog {name}: Spark's settings for {kind or properties.get('py-catalog-impl')} can't be derived",
                hint=f"set catalog-impl (or type) and its keys under `catalog.{name}.spark` in connections.yaml",
                code=Code.SPARK_CATALOG,
            )


def _jdbc(name: str, uri: str) -> dict[str, str]:
    url = make_url(uri)
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise ConfigError(
            f"catalog {name}: the JDBC address for {url.get_backend_name()} can't be derived from its uri",
            hint=f"set uri, jdbc.user and jdbc.password under `catalog.{name}.spark` in connections.yaml",
            code=Code.SPARK_CATALOG,
        )
    given = {"jdbc.user": url.username, "jdbc.password": url.password}
    return {
        "type": "jdbc",
        "uri": f"jdbc:{driver}:{url.database}" if driver == "sqlite" else f"jdbc:{driver}://{_place(url)}",
        "jdbc.schema-version": "V1",
        **{key: value for key, value in given.items() if value},
    }


def _place(url: URL) -> str:
    """Without user and password, which the driver takes for a part of the host; `URL.set` would keep them."""
    bare = URL.create("x", host=url.host, port=url.port, database=url.database, query=url.query)
    return bare.render_as_string().removeprefix("x://")


def _storage(properties: Mapping[str, str]) -> dict[str, str]:
    """Object stores: Java names the region otherwise, and asks for path-style addresses where Python asks for the
    other kind."""
    found = dict(properties)
    if "s3.region" in found:
        found.setdefault("client.region", found["s3.region"])
    if "s3.endpoint" in found:
        virtual = found.get("s3.force-virtual-addressing", "false") == "true"
        found.setdefault("s3.path-style-access", str(not virtual).lower())
    if found.get("warehouse", "").startswith("s3"):
        found.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
    return found


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Tables as a pipeline asks for them, on a real SQLite catalog, read back by opening it again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from botocore.exceptions import ClientError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import CatalogSettings
from calve.sink_core.config.load import load
from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.iceberg.catalog.opening import open_catalog, unreachable_as_ours
from calve.sink_core.iceberg.create.tables import ensure_tables
from calve.sink_core.records.columns.type_text import schema_of, type_text
from tests.codes import names, raises

RECORDS = [b'{"id": 1, "at": "2024-05-31T10:00:00Z", "place": {"city": "Bergen"}}']
COLUMNS = {"id": "long", "at": "timestamptz", "place": "struct<city: string>"}


def sample() -> dict[str, list[bytes]]:
    return {"flights": RECORDS}


def no_sample() -> dict[str, list[bytes]]:
    raise AssertionError("nothing has to be inferred here")


def pipeline(directory: Path, *tables: dict[str, object], **settings: object) -> SinkPipeline:
    connections = {
        "deployment": "test",
        "kafka": {"main": {"bootstrap.servers": "localhost:9092"}},
        "catalog": {"lake": {"type": "sql", "uri": f"sqlite:///{directory}/lake/catalog.db"}},
    }
    config = {
        "name": "flights",
        "source": {"kafka": "main", "topics": ["flights"]},
        "catalog": "lake",
        "tables": list(tables),
        **settings,
    }
    (directory / "connections.yaml").write_text(yaml.safe_dump(connections))
    (directory / "pipeline.yaml").write_text(yaml.safe_dump(config))
    return load(directory / "pipeline.yaml")


def columns(schema: Schema) -> dict[str, str]:
    return {field.name: type_text(field.field_type) for field in schema.fields}


def test_every_table_of_the_pipeline_is_created_and_found_the_next_time(catalog: SqlCatalog, tmp_path: Path) -> None:
    wanted = pipeline(tmp_path, {"name": "air.flights", "auto_create": {}})
    first = ensure_tables(catalog, wanted, sample)
    again = ensure_tables(catalog, wanted, no_sample)
    assert set(first) == {"air.flights", "calve.flights_ledger", "calve.flights_dead_letters"}
    assert {name: t.metadata.table_uuid for name, t in first.items()} == {
        name: t.metadata.table_uuid for name, t in again.items()
    }
    kafka = "struct<topic: string, partition: int, offset: long, timestamp: timestamptz>"
    assert columns(catalog.load_table("air.flights").schema()) == {**COLUMNS, "_kafka": kafka}


def test_named_columns_are_the_columns_and_need_no_sample(catalog: SqlCatalog, tmp_path: Path) -> None:
    named = {"amount": "decimal(10, 2)", "tags": "list<string>", "by": "map<string, struct<`a b`: int>>"}
    table = {"name": "a.b.t", "auto_create": {"columns": named}, "kafka_column": False}
    created = ensure_tables(catalog, pipeline(tmp_path, table), no_sample)["a.b.t"]
    assert columns(created.schema()) == named


def test_defaults_hold_unless_the_pipeline_says_otherwise(catalog: SqlCatalog, tmp_path: Path) -> None:
    given = {"write.parquet.compression-codec": "snappy", "write.object-storage.enabled": True}
    table = {"name": "air.flights", "auto_create": {"properties": given}, "target_file_size": "64MiB"}
    properties = ensure_tables(catalog, pipeline(tmp_path, table), sample)["air.flights"].metadata.properties
    assert properties["write.parquet.compression-codec"] == "snappy"
    assert properties["write.object-storage.enabled"] == "true"
    assert properties["write.target-file-size-bytes"] == str(64 * 2**20)
    assert properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert properties["write.metadata.previous-versions-max"] == "100"
    assert properties["calve.created-by"].startswith("calve ")


def test_tables_are_of_format_version_2_where_the_pipeline_puts_them(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = {"name": "air.flights", "auto_create": {"location": f"file://{tmp_path}/elsewhere"}}
    created = ensure_tables(catalog, pipeline(tmp_path, table), sample)
    assert {t.metadata.format_version for t in created.values()} == {2}
    assert created["air.flights"].metadata.location == f"file://{tmp_path}/elsewhere"


def test_partition_terms_get_icebergs_own_names(catalog: SqlCatalog, tmp_path: Path) -> None:
    terms = ["year(at)", "bucket(16, id)", "truncate(3,place.city)", "place.city", "day(_kafka.timestamp)"]
    table = {"name": "air.flights", "auto_create": {"partition_by": terms}}
    created = ensure_tables(catalog, pipeline(tmp_path, table), sample)["air.flights"]
    schema = created.schema()
    assert [(f.name, str(f.transform), schema.find_column_name(f.source_id)) for f in created.spec().fields] == [
        ("at_year", "year", "at"),
        ("id_bucket", "bucket[16]", "id"),
        ("place.city_trunc", "truncate[3]", "place.city"),
        ("place.city", "identity", "place.city"),
        ("_kafka.timestamp_day", "day", "_kafka.timestamp"),
    ]


@pytest.mark.parametrize(
    ("term", "named"),
    [
        ("month(att)", ["att", "at?"]),
        ("months(at)", ["months", "month?"]),
        ("bucket(id)", ["bucket"]),
        ("truncate(0, id)", ["truncate"]),
        ("day(3, at)", ["day"]),
        ("day(id)", ["day", "id", "long"]),
        ("place", ["identity", "place", "struct"]),
        ("month(at", []),
    ],
)
def test_a_wrong_partition_term_is_named_and_nothing_is_created(
    term: str, named: list[str], catalog: SqlCatalog, tmp_path: Path
) -> None:
    wanted = pipeline(tmp_path, {"name": "air.flights", "auto_create": {"partition_by": [term]}})
    with raises(Code.BAD_TERM) as raised:
        ensure_tables(catalog, wanted, sample)
    before, _, said = raised.value.message.partition(f"partition_by {term!r}")
    names(before, "air.flights")
    names(said, *named)
    assert catalog.list_namespaces() == []


def test_a_partition_made_twice_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    wanted = pipeline(tmp_path, {"name": "a.t", "auto_create": {"partition_by": ["bucket(4, id)", "bucket(8, id)"]}})
    with raises(Code.BAD_TERM, "id_bucket"):
        ensure_tables(catalog, wanted, sample)


def test_a_missing_table_that_is_not_to_be_created_comes_with_its_statement(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    with raises(Code.NO_SUCH_TABLE, "air.flights", "auto_create") as raised:
        ensure_tables(catalog, pipeline(tmp_path, {"name": "air.flights"}), sample)
    assert "CREATE TABLE lake.air.flights (`id` bigint, `at` timestamp, `place` struct<`city`: string>, `_kafka`" in (
        raised.value.hint
    )
    with pytest.raises(NoSuchTableError):
        catalog.load_table("calve.flights_ledger")


@pytest.mark.parametrize("name", ["_kafka", "_Kafka"])
def test_a_field_named_like_the_kafka_column_is_refused(catalog: SqlCatalog, tmp_path: Path, name: str) -> None:
    wanted = pipeline(tmp_path, {"name": "a.t", "auto_create": {}})
    with raises(Code.TAKEN_FIELD, "_kafka"):
        ensure_tables(catalog, wanted, lambda: {"flights": [f'{{"{name}": 1}}'.encode()]})


def test_another_format_version_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    wanted = pipeline(tmp_path, {"name": "a.t", "auto_create": {"properties": {"format-version": 3}}})
    with raises(Code.OTHER_FORMAT_VERSION, "format-version", 3, 2, of=ConfigError):
        ensure_tables(catalog, wanted, sample)


class CreatedMeanwhile(SqlCatalog):
    """The catalog at the moment somebody else creates the same table between our look and our creation."""

    def create_table(self, identifier: str, *args: object, **settings: object) -> object:  # type: ignore[override]
        if identifier == "air.flights":
            super().create_table(identifier, Schema(NestedField(1, "theirs", LongType(), required=False)))
        return super().create_table(identifier, *args, **settings)  # type: ignore[arg-type]


def test_a_table_created_by_somebody_else_at_the_same_moment_is_taken(catalog: SqlCatalog, tmp_path: Path) -> None:
    with CreatedMeanwhile("lake", **catalog.properties) as racing:
        found = ensure_tables(racing, pipeline(tmp_path, {"name": "air.flights", "auto_create": {}}), sample)
    assert columns(found["air.flights"].schema()) == {"theirs": "long"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("bigint", ["long"]),
        ("timestmp", ["timestamp"]),
        ("decimal(39, 2)", [38]),
        ("decimal(4, 5)", []),
        ("list<string", ["'>'"]),
        ("struct<a int>", ["'int'", "':'"]),
        ("struct<a: int, a: long>", []),
        ("long long", ["'long'"]),
        ("timestamp_ns", ["timestamp"]),
        ("", []),
        ("`", []),
    ],
)
def test_a_wrong_type_is_named_with_its_column(text: str, named: list[object]) -> None:
    with raises(Code.NO_TYPE) as raised:
        schema_of({"price": text})
    place, found, said = raised.value.message.partition(f": {text!r} ")
    assert found
    names(place, "price")
    names(said, *named)


@pytest.mark.parametrize(
    "text",
    ["boolean", "fixed[16]", "decimal(38, 0)", "map<string, list<struct<a: uuid, `b,c``d`: time>>>", "timestamptz"],
)
def test_a_type_is_read_back_as_it_was_written(text: str) -> None:
    assert type_text(schema_of({"it": text}).find_type("it")) == text


@pytest.mark.parametrize(
    ("properties", "code", "named"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:1/"}, Code.CATALOG_AWAY, ["lake", "ConnectionError"]),
        ({"type": "rest", "uri": "127.0.0.1:1"}, Code.CATALOG_SETTING, ["lake", "InvalidSchema"]),
        ({"type": "sql", "uri": "sqlite:////dev/null/catalog.db"}, Code.CATALOG_SETTING, ["/dev/null/catalog.db"]),
        ({"type": "sql", "uri": "oracel://u:hidden@h/d"}, Code.CATALOG_SETTING, ["lake", "NoSuchModuleError"]),
        ({"type": "sql", "uri": "${ENV:CALVE_TEST_UNSET}"}, Code.UNSET_VARIABLE, ["uri", "CALVE_TEST_UNSET"]),
        (
            {"type": "sqll", "uri": "x", "token": "hidden"},
            Code.CATALOG_SETTING,
            ["lake", "sqll", "rest, sql"],
        ),
        ({"type": "", "uri": "x", "token": "hidden"}, Code.CATALOG_SETTING, ["lake"]),
    ],
)
def test_trouble_with_the_catalog_is_said_without_secrets(
    properties: dict[str, str], code: Code, named: list[str]
) -> None:
    of = Unreachable if code is Code.CATALOG_AWAY else ConfigError
    with raises(code, *named, of=of) as raised:
        open_catalog(CatalogSettings("lake", properties, {}))
    assert "hidden" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body."), Code.CATALOG_REFUSES),
        (OSError("AWS Error UNKNOWN (HTTP status 403) during CreateMultipartUpload operation"), Code.CATALOG_REFUSES),
        (OSError("google::cloud::Status(PERMISSION_DENIED: no access)"), Code.CATALOG_REFUSES),
        (OSError("PUT failed: 403 AuthorizationPermissionMismatch"), Code.CATALOG_REFUSES),
        (PermissionError("denied"), Code.CATALOG_REFUSES),
        (ClientError({"Error": {"Code": "AccessDeniedException", "Message": "m"}}, "GetTable"), Code.CATALOG_REFUSES),
        (ClientError({"Error": {"Code": "ThrottlingException", "Message": "m"}}, "GetTable"), Code.CATALOG_AWAY),
        (OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7"), Code.CATALOG_AWAY),
        (OSError("AWS Error UNKNOWN (HTTP status 503) during PutObject operation"), Code.CATALOG_AWAY),
    ],
)
def test_what_storage_refuses_is_told_from_storage_that_is_away(error: Exception, code: Code) -> None:
    with raises(code), unreachable_as_ours("loading table a.b"):
        raise error


def test_what_tells_about_a_table_passes_through(catalog: SqlCatalog) -> None:
    with pytest.raises(NoSuchTableError), unreachable_as_ours("loading table a.b"):
        catalog.load_table("a.b")


def test_a_table_is_created_with_its_order_and_what_tells_rows_apart(catalog: SqlCatalog, tmp_path: Path) -> None:
    made = {
        "columns": COLUMNS,
        "sort_order": ["day(at) desc", "place.city nulls last", "id"],
        "identifier_fields": ["id", "place.city"],
    }
    config = pipeline(tmp_path, {"name": "air.flights", "auto_create": made})
    ensure_tables(catalog, config, no_sample)
    table = catalog.load_table("air.flights")
    assert [str(field) for field in table.sort_order().fields] == [
        f"day({table.schema().find_field('at').field_id}) DESC NULLS LAST",
        f"{table.schema().find_field('place.city').field_id} ASC NULLS LAST",
        f"{table.schema().find_field('id').field_id} ASC NULLS FIRST",
    ]
    assert table.schema().identifier_field_names() == {"id", "place.city"}
    required = {name for name in table.schema().column_names if table.schema().find_field(name).required}
    assert required >= {"id", "place", "place.city"}
    assert "at" not in required


@pytest.mark.parametrize(
    ("setting", "wrong", "code", "named"),
    [
        ("sort_order", "ad", Code.BAD_TERM, ["ad", "at", "place.city"]),
        ("sort_order", "day(id)", Code.BAD_TERM, ["day", "id", "long"]),
        ("identifier_fields", "ad", Code.BAD_TERM, ["ad", "at", "place.city"]),
        ("identifier_fields", "place", Code.IDENTIFIER_FIELDS, ["place", "struct"]),
    ],
)
def test_an_order_or_an_identifier_that_does_not_hold_is_refused(
    catalog: SqlCatalog, tmp_path: Path, setting: str, wrong: str, code: Code, named: list[str]
) -> None:
    config = pipeline(tmp_path, {"name": "a.b", "auto_create": {"columns": COLUMNS, setting: [wrong]}})
    with raises(code) as refused:
        ensure_tables(catalog, config, no_sample)
    before, _, said = refused.value.message.partition(f"{setting} {wrong!r}: ")
    names(before, "a.b")
    names(said, *named)


def test_columns_have_the_comments_that_the_file_gives_them(catalog: SqlCatalog, tmp_path: Path) -> None:
    said = {"id": "Of the booking.", "place.city": "Where it leaves."}
    config = pipeline(tmp_path, {"name": "a.b", "auto_create": {"columns": COLUMNS, "comments": said}})
    created = ensure_tables(catalog, config, no_sample)["a.b"].schema()
    assert {name: created.find_field(name).doc for name in ("id", "at", "place", "place.city")} == {
        "id": "Of the booking.",
        "at": None,
        "place": None,
        "place.city": "Where it leaves.",
    }


def test_a_comment_on_a_column_that_is_not_there_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    config = pipeline(tmp_path, {"name": "a.b", "auto_create": {"columns": COLUMNS, "comments": {"place.cty": "?"}}})
    with raises(Code.BAD_TERM, "a.b", "comments", "place.cty", "place.city"):
        ensure_tables(catalog, config, no_sample)

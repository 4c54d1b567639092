"""What equality deletes need of a table: a key that tells rows apart, and a partition spec that reaches all of them.

That is the table's own, if it has no other and the key says the partition; else one without fields.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import AddPartitionSpecUpdate, AssertDefaultSpecId, AssertTableUUID
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType

from calve.sink_core.codes import Code
from calve.sink_core.config.problems import nearest
from calve.sink_core.errors import CommitConflict, TableUnusable
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours

TRIES = 5
_IDS = 1_000_000


def key_of(metadata: TableMetadata, names: Sequence[str], *, table: str) -> tuple[int, ...]:
    """Field ids of the key's columns; of the table's identifier fields if `names` is empty.

    Raises TableUnusable for a key that can't tell rows apart.
    """
    schema = metadata.schema()
    wanted = list(names) or sorted(schema.identifier_field_names())
    if not wanted:
        raise TableUnusable(
            f"{table}: takes row changes, and neither key nor the table's identifier fields say by which columns",
            hint="set key for the table",
            code=Code.NO_KEY,
        )
    return tuple(_key_field(schema, name, table) for name in wanted)


def _key_field(schema: Schema, name: str, table: str) -> int:
    field = next((field for field in schema.fields if field.name == name), None)
    if field is None:
        known = nearest(name, [field.name for field in schema.fields])
        raise TableUnusable(
            f"{table}: key {name} is no column of the table; {known}",
            hint="name columns of the table, not fields within",
            code=Code.NO_SUCH_COLUMN,
        )
    if not field.field_type.is_primitive or isinstance(field.field_type, FloatType | DoubleType):
        raise TableUnusable(
            f"{table}: key {name} is {field.field_type}, by which rows can't be told apart",
            hint="name columns of plain types other than float and double",
            code=Code.KEY_TYPE,
        )
    if not field.required:
        raise TableUnusable(
            f"{table}: key {name} is optional, and a row without it could never be changed",
            hint=f"make it required, in Spark: ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL, where the catalog "
            "allows it; or create the table with identifier_fields",
            code=Code.OPTIONAL_KEY,
        )
    return field.field_id


def global_spec(metadata: TableMetadata) -> PartitionSpec | None:
    """A spec without fields: deletes under it are for all rows of a table, whatever partition and spec they are in."""
    return next((spec for spec in metadata.partition_specs if spec.is_unpartitioned()), None)


def spec_of_deletes(metadata: TableMetadata, key: Sequence[int]) -> PartitionSpec | None:
    """The spec that deletes by `key` (field ids) are written under, None if the table lacks it as yet.

    Where the table has never had another one, and the key has all that its partitions are made of, every row with a
    key of the deletes lies in their partition; as long as no other spec comes (`iceberg/commit/relisting`).
    """
    first, *others = metadata.partition_specs
    by_key = all(field.source_id in key and not isinstance(field.transform, VoidTransform) for field in first.fields)
    return first if by_key and not others else global_spec(metadata)


def with_spec_of_deletes(catalog: Catalog, table: Table, key: Sequence[int]) -> Table:
    """The table, with the spec that deletes by `key` need. Raises as `with_global_spec`."""
    return table if spec_of_deletes(table.metadata, key) else with_global_spec(catalog, table)


def with_global_spec(catalog: Catalog, table: Table) -> Table:
    """The table with a spec without fields, added beside its default one if it has none. Raises CommitConflict,
    Unreachable.
    """
    for _ in range(TRIES):
        metadata = table.metadata
        if global_spec(metadata) is not None:
            return table
        highest = max(spec.spec_id for spec in metadata.partition_specs)
        # No requirement of Iceberg's tells that somebody else has added one since: two of one id would make the table
        # unreadable, two of different ids do no harm.
        spec = PartitionSpec(spec_id=highest + 1 + secrets.randbelow(_IDS))
        requirements = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        )
        name = ".".join(table.name())
        with unreachable_as_ours(f"adding a partition spec to {name}"):
            # Where somebody else was faster, the table says whether it is there now.
            with suppress(CommitFailedException, ValueError):
                catalog.commit_table(table, requirements, (AddPartitionSpecUpdate(spec=spec),))
            table = catalog.load_table(table.name())
    raise CommitConflict(
        f"{'.'.join(table.name())}: an unpartitioned spec for deletes could not be added in {TRIES} attempts",
        hint="run again; if it stays, does the catalog refuse a second partition spec?",
        code=Code.SPEC_FOR_DELETES,
    )


def keys_only(metadata: TableMetadata, key: Sequence[int]) -> TableMetadata:
    """The table as files of its keys see it: the key's columns under the spec of its deletes, in no order.

    Raises TableUnusable if there is no such spec.
    """
    spec, schema = spec_of_deletes(metadata, key), metadata.schema()
    if spec is None:
        raise TableUnusable(
            f"table at {metadata.location}: has no unpartitioned spec any more, which its deletes are written under",
            hint="somebody removed it while this run was at work; run again",
            code=Code.SPEC_FOR_DELETES,
        )
    fields = [schema.find_field(field_id) for field_id in key]
    return metadata.model_copy(
        update={
            "schemas": [Schema(*fields, schema_id=schema.schema_id)],
            "default_spec_id": spec.spec_id,
            "sort_orders": [UNSORTED_SORT_ORDER],
            "default_sort_order_id": UNSORTED_SORT_ORDER.order_id,
        }
    )

"""Rules of row changes, each with what it is when it is switched off."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from calve.sink_core.iceberg.changes import pieces as change_pieces
from calve.sink_core.iceberg.changes import writer
from calve.sink_core.iceberg.commit import append
from calve.sink_core.iceberg.files import manifests
from calve.sink_core.records.changes import fold, rows
from calve.sink_core.records.changes.fold import Folded
from calve.sink_core.tables import folding
from calve.sink_core.tables.history import shares as own
from calve.sink_core.tables.history.shares import Share

SwitchOff = Callable[[pytest.MonkeyPatch], None]


def _one_snapshot(patch: pytest.MonkeyPatch) -> None:
    def shares_of(events: Sequence[Any], stored_offset: int, last_event_id: str) -> list[Share]:
        return [Share(events, stored_offset, last_event_id)]

    patch.setattr(own, "shares_of", shares_of)


def _rows_that_come_leave_none(patch: pytest.MonkeyPatch) -> None:
    def folded(last: pa.Table, key: Sequence[int], *, soft: bool = False) -> Folded:
        found = fold.folded(last, key, soft=soft)
        return replace(found, keys=found.keys.filter(last.column(rows.DELETES)))

    patch.setattr(writer, "folded", folded)


def _own_spec(patch: pytest.MonkeyPatch) -> None:
    """Deletes lie in the partition of the row that comes, by the default spec, as of writers that don't look."""

    def keys_only(metadata: TableMetadata, key: Sequence[int]) -> TableMetadata:
        of = {*key, *(field.source_id for field in metadata.spec().fields)}
        fields = [field.model_copy(update={"required": field.field_id in key}) for field in metadata.schema().fields]
        schema = Schema(*(f for f in fields if f.field_id in of), schema_id=metadata.schema().schema_id)
        unsorted = {"sort_orders": [UNSORTED_SORT_ORDER], "default_sort_order_id": UNSORTED_SORT_ORDER.order_id}
        return metadata.model_copy(update={"schemas": [schema], **unsorted})

    def folded(last: pa.Table, key: Sequence[int], *, soft: bool = False) -> Folded:
        return replace(fold.folded(last, key, soft=soft), keys=last.select(range(last.num_columns + rows.DELETES)))

    class KeysOfAll(writer.TableWriter):
        def write(self, given: pa.RecordBatch) -> None:
            super().write(given.select(self.schema.names))

    patch.setattr(writer, "keys_only", keys_only)
    patch.setattr(writer, "folded", folded)
    patch.setattr(writer, "TableWriter", KeysOfAll)
    _as_written(patch)


def _as_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(append, "relisted", lambda _table, ref, _sequence_number: ref)


def _ids_of_another_column(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writer, "replace", lambda file, equality_ids: replace(file, equality_ids=(equality_ids[0] + 2,)))


def _long_ids(patch: pytest.MonkeyPatch) -> None:
    """As pyiceberg itself would write them."""
    patch.setattr(manifests._DeleteManifestWriter, "file_fields", ())


def _all_changes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(folding, "last_by_key", lambda changes, *_, **__: changes)


def _arrival(patch: pytest.MonkeyPatch) -> None:
    def last_by_key(changes: pa.Table, *given: Any, **more: Any) -> pa.Table:
        arrived = pa.array(np.arange(len(changes)), pa.int64())
        at = changes.num_columns + rows.OFFSET
        return fold.last_by_key(changes.set_column(at, changes.field(at), arrived), *given, **more)

    patch.setattr(folding, "last_by_key", last_by_key)


def _by_reader(patch: pytest.MonkeyPatch) -> None:
    def buckets_of(changes: pa.Table, key: Sequence[int], schema: Schema, buckets: int) -> np.ndarray:
        return np.arange(len(changes)) % buckets

    patch.setattr(change_pieces, "buckets_of", buckets_of)


def _late_ones_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(folding, "not_outdated", lambda last, *_: last)


def _equals_lose(patch: pytest.MonkeyPatch) -> None:
    """A change of the same order as the row is left out, where it was read later."""

    def not_outdated(last: pa.Table, key: Sequence[int], order: pa.ChunkedArray, existing: pa.Table) -> pa.Table:
        at = existing.num_columns - 1
        later = pa.compute.add(existing.column(at), 1)
        return fold.not_outdated(last, key, order, existing.set_column(at, existing.field(at), later))

    patch.setattr(folding, "not_outdated", not_outdated)


RULES: Mapping[str, SwitchOff] = {
    "a batch with deletes has a snapshot of its own": _one_snapshot,
    "a row that comes takes the place of the one of its key": _rows_that_come_leave_none,
    "deletes reach all partitions and specs": _own_spec,
    "deletes of a partition are for all once the spec has changed": _as_written,
    "deletes name the key's columns": _ids_of_another_column,
    "ids of the key's columns are ints": _long_ids,
    "of the changes of a key in a batch the last one counts": _all_changes,
    "the change with the highest offset is the last": _arrival,
    "all changes of a key go to one task": _by_reader,
    "late changes are left out": _late_ones_stay,
    "of equal order the one read later counts": _equals_lose,
}

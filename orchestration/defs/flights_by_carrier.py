"""An asset downstream of a pipeline's table, as one would write it by hand: delays by carrier, kept up to date."""

# Without postponed annotations: Dagster looks at the asset's as they stand.

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

PIPELINE = Path(__file__).with_name("flights") / "defs.yaml"
FLIGHTS = "air.flights"
DELAYS = "air.delays_by_carrier"
INTERVAL_S = 24
"""So that the table isn't read after each commit. Just below a multiple of 5: Dagster's loop takes 5 s."""

COLUMNS = dg.TableSchema(
    [
        dg.TableColumn("carrier", "string"),
        dg.TableColumn("flights", "int"),
        dg.TableColumn("cancelled", "int"),
        dg.TableColumn("mean_dep_delay", "float", description="minutes"),
    ]
)

# Of `eager`, all but waiting for the run that writes the flights: while they keep coming, there is nearly always one.
AS_FLIGHTS_COME = (
    dg.AutomationCondition.eager()
    .without(~dg.AutomationCondition.any_deps_in_progress())
    .with_label("eager, while flights come too")
)


@dg.asset(
    key=DELAYS.split("."),
    deps=[dg.AssetKey(FLIGHTS.split("."))],
    group_name="air",
    owners=["team:data"],
    kinds={"iceberg", "pyarrow"},
    tags={"dagster/storage_kind": "iceberg"},
    metadata={"dagster/table_name": DELAYS, "catalog": "lake", "dagster/column_schema": COLUMNS},
    automation_condition=AS_FLIGHTS_COME,
)
def delays_by_carrier(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    """Flights, cancellations and mean departure delay of each carrier, all from one snapshot of the flights."""
    from calve.sink_core.config.load import load_as
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.iceberg.catalog.opening import open_catalog

    with open_catalog(load_as(SinkPipeline, PIPELINE).catalog) as catalog:
        flights = catalog.load_table(FLIGHTS)
        snapshot = flights.current_snapshot()
        snapshot_id = snapshot.snapshot_id if snapshot else None
        carriers = by_carrier(flights, snapshot_id)
        _replace(catalog, carriers)
    context.log.info(f"{carriers.num_rows} carriers from snapshot {snapshot_id}")
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": carriers.num_rows,
            "carriers": dg.MetadataValue.table([dg.TableRecord(row) for row in carriers.to_pylist()], schema=COLUMNS),
            # As text: the browser's numbers don't hold it.
            "snapshot id": str(snapshot_id),
        }
    )


def by_carrier(flights: "Table", snapshot_id: int | None) -> "pa.Table":
    """`carrier`, `flights`, `cancelled` and `mean_dep_delay`, the carrier with the most flights first."""
    read = flights.scan(selected_fields=("carrier", "dep_delay"), snapshot_id=snapshot_id).to_arrow()
    sums = read.group_by("carrier").aggregate([([], "count_all"), ("dep_delay", "count"), ("dep_delay", "mean")])
    rows = sums.sort_by([("count_all", "descending")]).to_pylist()
    return _table(rows)


def _table(rows: list[dict[str, Any]]) -> "pa.Table":
    import pyarrow as pa

    return pa.table(
        {
            "carrier": pa.array([row["carrier"] for row in rows], pa.string()),
            "flights": pa.array([row["count_all"] for row in rows], pa.int64()),
            # A flight that didn't take off has no departure delay.
            "cancelled": pa.array([row["count_all"] - row["dep_delay_count"] for row in rows], pa.int64()),
            "mean_dep_delay": pa.array([row["dep_delay_mean"] for row in rows], pa.float64()),
        }
    )


def _replace(catalog: "Catalog", carriers: "pa.Table") -> None:
    """Make `carriers` all there is in the table, which is created if it is missing."""
    properties = {"write.metadata.delete-after-commit.enabled": "true"}
    table = catalog.create_table_if_not_exists(DELAYS, carriers.schema, properties=properties)
    if table.current_snapshot() is None:
        table.append(carriers)
    else:
        table.overwrite(carriers)


automation = dg.AutomationConditionSensorDefinition(
    "air_automation",
    target=[delays_by_carrier],
    # The sensor Dagster makes by itself begins switched off.
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=INTERVAL_S,
    description=f"Brings {DELAYS} up to date when {FLIGHTS} has got something.",
)

"""What the fork server of `tests.launch` imports, so that no forked `calve` has to. Nothing is opened."""

import gc
from importlib import import_module

for name in (
    "calve.orchestration.cli.main",
    "calve.sink_core.sink.maintenance.tasks",
    "calve.sink_core.sink.resolve.resolve",
    "calve.sink_core.sink.verify.proof",
    "calve.sink_core.sink.resolve.refill",
    "calve.sink_core.sink.run",
    "calve.spark_jobs.procedures",
    "pyiceberg.catalog.sql",
    "pyiceberg_core",
    "pyspark.sql.connect.session",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "typer._adapters",
    "tests.e2e.faults.processes",
    "tests.e2e.faults.slots.processes",
):
    import_module(name)

# Otherwise each collection in a forked process copies the pages of all this.
gc.freeze()

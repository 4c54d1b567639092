"""What the fork server of `tests.launch` imports, so that no forked `calve` has to. Nothing is opened."""

import gc
from importlib import import_module

for name in (
    "orchestration.cli.main",
    "sink_core.resolve.resolve",
    "sink_core.verify.verify",
    "spark_jobs.maintenance.tasks",
    "spark_jobs.refill",
    "spark_jobs.run",
    "pyiceberg.catalog.sql",
    "pyiceberg_core",
    "pyspark.sql.connect.session",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "typer._adapters",
    "tests.e2e.faults.processes",
):
    import_module(name)

# Otherwise each collection in a forked process copies the pages of all this.
gc.freeze()

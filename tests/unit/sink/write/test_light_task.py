"""What a task imports before its first record: it is paid in each process that Spark starts, and in each small run."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("confluent_kafka.schema_registry", "fastavro", "duckdb", "pyiceberg.catalog.rest", "pyspark", "grpc_tools")


def test_a_task_that_reads_json_imports_no_client_of_registries_or_catalogs() -> None:
    code = f"""
import sys
import calve.sink_core.sink.write.task
import calve.sink_core.records.json.format
print(*sorted(name for name in sys.modules if name.startswith({HEAVY!r})))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []

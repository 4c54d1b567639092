"""A code server imports what it shows and no more: each run starts by loading all definitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("pyspark", "pyarrow", "pyiceberg", "pandas", "dagster_pyspark")
PROGRAM = f"""
import json
import sys
from pathlib import Path

import dagster as dg

from calve import KafkaIcebergPipeline, alert_sensor, build_pipeline_defs, cleanup_job, load_pipeline

here = Path(sys.argv[1])
connections = {{
    "deployment": "test",
    "kafka": {{"main": {{"bootstrap.servers": "${{ENV:NOT_SET}}"}}}},
    "catalog": {{"lake": {{"type": "sql", "uri": "${{ENV:NOT_SET}}", "warehouse": "file:///lake"}}}},
}}
(here / "connections.yaml").write_text(json.dumps(connections))
many = []
for number in range(100):
    table = {{"name": f"db.t{{number}}", "auto_create": {{"columns": {{"id": "long"}}}}}}
    source = {{"kafka": "main", "topics": [f"t{{number}}", "shared"]}}
    pipeline = {{"name": f"p{{number}}", "source": source, "catalog": "lake", "tables": [table]}}
    if number % 2:
        pipeline["commit"] = {{"every": "5m"}}
    file = here / f"p{{number}}.yaml"
    file.write_text(json.dumps(pipeline))
    many.append(build_pipeline_defs(load_pipeline(file)))
defs = dg.Definitions.merge(*many)
repository = defs.get_repository_def()
assert len(repository.sensor_defs) == 200
assert len(repository.get_all_jobs()) >= 300
heavy = sorted(name for name in sys.modules if name.startswith({HEAVY!r}))
assert not heavy, heavy[:5]
"""


def test_a_hundred_pipelines_are_built_without_a_heavy_import_or_a_word(tmp_path: Path) -> None:
    """Nor is anything connected to, or an environment variable read: there are none."""
    root = Path(__file__).parents[3]
    built = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, str(tmp_path)],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")

"""What Dagster is given to show the lineage of `examples/postgres_to_iceberg`: both files, side by side."""

from __future__ import annotations

import dagster as dg

from calve import build_pipeline_defs
from calve.sink_core.config.load import load
from tests.documents import ROOT

EXAMPLE = ROOT / "examples/postgres_to_iceberg"

defs = dg.Definitions.merge(*(build_pipeline_defs(load(EXAMPLE / name)) for name in ("source.yaml", "pipeline.yaml")))

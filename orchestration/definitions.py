"""What Dagster loads from a clone: the pipelines in `orchestration/defs`, and the clean-up of old runs."""

from __future__ import annotations

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Every component and definition below `orchestration/defs`."""
    found = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    # For what the UI and automation launch without a job: a process for each step costs more than the steps do.
    return dg.Definitions.merge(found, dg.Definitions(executor=dg.in_process_executor))

"""Names that Dagster keeps to itself and Calve uses.

A release of Dagster may drop or move them without a word; `tests/unit/orchestration/test_compat.py` then says which.
"""

from __future__ import annotations

# By these tags Dagster tells what is out of sync. It writes them itself for an op's outputs only.
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    DATA_VERSION_IS_USER_PROVIDED_TAG,
    DATA_VERSION_TAG,
    INPUT_DATA_VERSION_TAG_PREFIX,
    INPUT_EVENT_POINTER_TAG_PREFIX,
    NULL_EVENT_POINTER,
)

# What a sensor of failed runs answers, so that its cursor is saved.
from dagster._core.definitions.run_request import DagsterRunReaction

# What `define_asset_job` gives.
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

# What executes a job's steps in the process of its run, and what it is given.
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.executor.in_process import InProcessExecutor

# What the event log has of a check's evaluation.
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

# The storage that keeps a file for each run, which deleting the run leaves there.
from dagster._core.storage.event_log import SqliteEventLogStorage

# Without it users get a warning for each beta of Dagster's that Calve's definitions use.
from dagster._utils.warnings import disable_dagster_warnings

__all__ = [
    "CODE_VERSION_TAG",
    "DATA_VERSION_IS_USER_PROVIDED_TAG",
    "DATA_VERSION_TAG",
    "INPUT_DATA_VERSION_TAG_PREFIX",
    "INPUT_EVENT_POINTER_TAG_PREFIX",
    "NULL_EVENT_POINTER",
    "AssetCheckExecutionRecord",
    "DagsterRunReaction",
    "ExecutionPlan",
    "InProcessExecutor",
    "PlanOrchestrationContext",
    "SqliteEventLogStorage",
    "UnresolvedAssetJobDefinition",
    "disable_dagster_warnings",
]

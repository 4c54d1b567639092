"""Names that Dagster keeps to itself are there, and are what Calve takes them for."""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module
from typing import Any

import dagster as dg
import pytest

from calve.orchestration import compat
from calve.orchestration.compat import AssetCheckExecutionRecord, DagsterRunReaction, SqliteEventLogStorage

VALUES = {
    "CODE_VERSION_TAG": "dagster/code_version",
    "DATA_VERSION_IS_USER_PROVIDED_TAG": "dagster/data_version_is_user_provided",
    "DATA_VERSION_TAG": "dagster/data_version",
    "INPUT_DATA_VERSION_TAG_PREFIX": "dagster/input_data_version",
    "INPUT_EVENT_POINTER_TAG_PREFIX": "dagster/input_event_pointer",
    "NULL_EVENT_POINTER": "NULL",
}
PLACES = {
    **dict.fromkeys(VALUES, "dagster._core.definitions.data_version"),
    "AssetCheckExecutionRecord": "dagster._core.storage.asset_check_execution_record",
    "DagsterRunReaction": "dagster._core.definitions.run_request",
    "ExecutionPlan": "dagster._core.execution.plan.plan",
    "InProcessExecutor": "dagster._core.executor.in_process",
    "PlanOrchestrationContext": "dagster._core.execution.context.system",
    "SqliteEventLogStorage": "dagster._core.storage.event_log",
    "UnresolvedAssetJobDefinition": "dagster._core.definitions.unresolved_asset_job_definition",
    "disable_dagster_warnings": "dagster._utils.warnings",
}


@pytest.mark.parametrize(("name", "module"), PLACES.items())
def test_a_name_is_there(name: str, module: str) -> None:
    assert hasattr(import_module(module), name), f"{module} has no {name} any more"
    assert hasattr(compat, name)


@pytest.mark.parametrize(("name", "value"), VALUES.items())
def test_a_tag_is_called_as_runs_in_storage_have_it(name: str, value: str) -> None:
    assert getattr(compat, name) == value, f"Dagster's {name} has changed"


def test_a_reaction_names_a_run_and_its_status() -> None:
    assert {"dagster_run", "run_status"} <= set(inspect.signature(DagsterRunReaction).parameters)


def test_a_record_of_a_check_has_the_event() -> None:
    assert {"event", "run_id", "create_timestamp"} <= set(inspect.signature(AssetCheckExecutionRecord).parameters)


def test_the_sqlite_storage_says_where_a_runs_file_is() -> None:
    assert list(inspect.signature(SqliteEventLogStorage.path_for_shard).parameters) == ["self", "run_id"]


def test_the_executor_in_process_is_made_of_what_calve_gives_it() -> None:
    parameters = list(inspect.signature(compat.InProcessExecutor).parameters)
    assert parameters[:2] == ["retries", "step_dependency_config"]


def test_a_job_of_assets_is_resolved_later() -> None:
    job: Any = dg.define_asset_job("job")
    assert isinstance(job, compat.UnresolvedAssetJobDefinition)


def test_nothing_is_said_of_betas() -> None:
    with warnings.catch_warnings(record=True) as said, compat.disable_dagster_warnings():
        warnings.warn("is a beta", dg.BetaWarning, stacklevel=1)
    assert not said

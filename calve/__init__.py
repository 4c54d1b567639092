"""Calve's public names. Everything else may move: its packages are its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calve.orchestration.dagster.alerts import Alert, alert_sensor
    from calve.orchestration.dagster.build import build_pipeline_defs
    from calve.orchestration.dagster.check_alerts import check_alert_sensor
    from calve.orchestration.dagster.cleanup import cleanup_job
    from calve.orchestration.dagster.components import KafkaIcebergPipeline, KafkaMirror, KafkaSource
    from calve.sink_core.config.effective import Pipeline
    from calve.sink_core.config.load import load as load_pipeline
    from calve.sink_core.control.status import Blocker
    from calve.sink_core.errors import CalveError, ConfigError, FindingError, RetriableError, TerminalError
    from calve.sink_core.source.base import BadRow, Limits, Record, Rows, Source, Support, Topic, Waiting, Work
    from calve.sink_core.source.flat_map import FlatMap

__all__ = [
    "Alert",
    "BadRow",
    "Blocker",
    "CalveError",
    "ConfigError",
    "FindingError",
    "FlatMap",
    "KafkaIcebergPipeline",
    "KafkaMirror",
    "KafkaSource",
    "Limits",
    "Pipeline",
    "Record",
    "RetriableError",
    "Rows",
    "Source",
    "Support",
    "TerminalError",
    "Topic",
    "Waiting",
    "Work",
    "alert_sensor",
    "build_pipeline_defs",
    "check_alert_sensor",
    "cleanup_job",
    "load_pipeline",
]

_HOMES = {
    "Alert": "calve.orchestration.dagster.alerts:Alert",
    "BadRow": "calve.sink_core.source.base:BadRow",
    "Blocker": "calve.sink_core.control.status:Blocker",
    "CalveError": "calve.sink_core.errors:CalveError",
    "ConfigError": "calve.sink_core.errors:ConfigError",
    "FindingError": "calve.sink_core.errors:FindingError",
    "FlatMap": "calve.sink_core.source.flat_map:FlatMap",
    "KafkaIcebergPipeline": "calve.orchestration.dagster.components:KafkaIcebergPipeline",
    "KafkaMirror": "calve.orchestration.dagster.components:KafkaMirror",
    "KafkaSource": "calve.orchestration.dagster.components:KafkaSource",
    "Limits": "calve.sink_core.source.base:Limits",
    "Pipeline": "calve.sink_core.config.effective:Pipeline",
    "Record": "calve.sink_core.source.base:Record",
    "RetriableError": "calve.sink_core.errors:RetriableError",
    "Rows": "calve.sink_core.source.base:Rows",
    "Source": "calve.sink_core.source.base:Source",
    "Support": "calve.sink_core.source.base:Support",
    "TerminalError": "calve.sink_core.errors:TerminalError",
    "Topic": "calve.sink_core.source.base:Topic",
    "Waiting": "calve.sink_core.source.base:Waiting",
    "Work": "calve.sink_core.source.base:Work",
    "alert_sensor": "calve.orchestration.dagster.alerts:alert_sensor",
    "build_pipeline_defs": "calve.orchestration.dagster.build:build_pipeline_defs",
    "check_alert_sensor": "calve.orchestration.dagster.check_alerts:check_alert_sensor",
    "cleanup_job": "calve.orchestration.dagster.cleanup:cleanup_job",
    "load_pipeline": "calve.sink_core.config.load:load",
}
"""Where each is, looked up when it is asked for: who needs one does not import what the others need."""


def __getattr__(name: str) -> Any:
    try:
        module, _, attribute = _HOMES[name].partition(":")
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Calve's public names. Everything else may move: its packages are its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestration.alerts import Alert, alert_sensor
    from orchestration.check_alerts import check_alert_sensor
    from orchestration.cleanup import cleanup_job
    from orchestration.components import KafkaIcebergPipeline
    from orchestration.pipelines.build import build_pipeline_defs
    from sink_core.config.effective import Pipeline
    from sink_core.config.load import load as load_pipeline
    from sink_core.errors import CalveError, ConfigError, FindingError

__all__ = [
    "Alert",
    "CalveError",
    "ConfigError",
    "FindingError",
    "KafkaIcebergPipeline",
    "Pipeline",
    "alert_sensor",
    "build_pipeline_defs",
    "check_alert_sensor",
    "cleanup_job",
    "load_pipeline",
]

_HOMES = {
    "Alert": "orchestration.alerts:Alert",
    "CalveError": "sink_core.errors:CalveError",
    "ConfigError": "sink_core.errors:ConfigError",
    "FindingError": "sink_core.errors:FindingError",
    "KafkaIcebergPipeline": "orchestration.components:KafkaIcebergPipeline",
    "Pipeline": "sink_core.config.effective:Pipeline",
    "alert_sensor": "orchestration.alerts:alert_sensor",
    "build_pipeline_defs": "orchestration.pipelines.build:build_pipeline_defs",
    "check_alert_sensor": "orchestration.check_alerts:check_alert_sensor",
    "cleanup_job": "orchestration.cleanup:cleanup_job",
    "load_pipeline": "sink_core.config.load:load",
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

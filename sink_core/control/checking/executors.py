"""What a Spark executor lacks to run a task of ours."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from calve.sink_core.codes import Code
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import ConfigError

MODULES = ("confluent_kafka", "numpy", "pyarrow")
"""What the tasks of every kind import beside Calve itself."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one executor lacks, in sentences."""

    host: str
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """A task that reports what the executor it runs on lacks. References travel unresolved, only names come back.

    `settings` are those of the connections that tasks open, by what they are called in messages.
    """

    settings: Mapping[str, Mapping[str, Any]] = field(repr=False)
    modules: tuple[str, ...] = MODULES
    version: str = field(default_factory=lambda: version("calve"))

    def __call__(self, _task: int) -> Report:
        """What the executor lacks."""
        lacking = [*self._missing_modules(), *self._unset_variables()]
        if (found := version("calve")) != self.version:
            lacking.append(f"calve is {found}, here it is {self.version}")
        return Report(socket.gethostname(), tuple(lacking))

    def _missing_modules(self) -> Iterable[str]:
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                yield f"cannot import {module}: {error}"

    def _unset_variables(self) -> Iterable[str]:
        for section, properties in self.settings.items():
            try:
                resolve(properties)
            except ConfigError as error:
                yield f"{section}: {error.message}"


def summary(reports: Iterable[Report]) -> str:
    """One line about all executors asked. Raises ConfigError that says what which host lacks."""
    asked = list(reports)
    lacking = sorted({f"{report.host}: {line}" for report in asked for line in report.lacking})
    if lacking:
        raise ConfigError(
            "executors lack something:\n    " + "\n    ".join(lacking),
            hint="install Calve with its dependencies where executors run, and set the variables there",
            code=Code.EXECUTORS,
        )
    return f"executors on {', '.join(sorted({report.host for report in asked}))} have all a task needs"

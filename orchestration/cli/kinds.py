"""What the command line needs of each kind of pipeline: one is added here, and in `sink_core/config/kinds.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from calve.sink_core import imports

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.config.source_pipeline import SourcePipeline
    from calve.sink_core.control.plane import AnyPlane

OF_ALL = (
    "config",
    "maintain keep-alive",
    "maintain trim",
    "pause",
    "resume",
    "spark start",
    "spark status",
    "spark stop",
)
"""The commands of every kind: they need a pipeline's files and its control plane, and no more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`open` connects to the control plane of one of its pipelines, `start` with the engine of a run.

    `does` has what it does for the commands that several kinds may have: each as `module:function`, imported when the
    command is given. The module of the command says with what it is called. `own` are commands of this kind alone.
    With `arrow` its records are Arrow's, and none of its code is of users, who may have some of pandas.
    """

    open: Callable[..., AnyPlane]
    start: Callable[[Any], AbstractContextManager[Any]]
    does: Mapping[str, str] = field(default_factory=dict[str, str])
    own: tuple[str, ...] = ()
    arrow: bool = False

    @property
    def commands(self) -> list[str]:
        return sorted((*OF_ALL, *self.does, *self.own))

    def body(self, command: str) -> Callable[..., Any]:
        """What it does for a command that it has."""
        with imports.for_good() if self.arrow else nullcontext():
            return resolve_name(self.does[command])


def _open_sink(pipeline: SinkPipeline) -> AnyPlane:
    with imports.for_good():
        from calve.sink_core.sink.loop.session import Session

    return Session.open(pipeline)


def _start_sink(pipeline: SinkPipeline) -> AbstractContextManager[Any]:
    with imports.for_good():
        from calve.spark_jobs.engine import session_on_spark

    return session_on_spark(pipeline)


def _start_slots(pipeline: MirrorPipeline | SourcePipeline) -> AbstractContextManager[Any]:
    from calve.spark_jobs.slots import on_spark

    opens: Any = KINDS[pipeline.kind].open
    return on_spark(opens, pipeline)


_SINK = "calve.orchestration.cli.sink"
SINK = Kind(
    _open_sink,
    _start_sink,
    does={
        "check": f"{_SINK}.check:checkup",
        "plan": "calve.sink_core.sink.schema_preview:preview",
        "positions export": f"{_SINK}.positions:export",
        "positions import": f"{_SINK}.positions:import_",
        "positions show": f"{_SINK}.positions:show",
        "resolve": "calve.orchestration.cli.answers:of_sink",
        "run": "calve.sink_core.sink.run:run_pipeline",
        "status": "calve.sink_core.sink.status:status",
        "verify": "calve.sink_core.sink.verify.proof:verify",
    },
    own=(
        "commit",
        "dead-letters list",
        "dead-letters replay",
        "drill",
        "maintain compact",
        "maintain expire",
        "maintain manifests",
        "maintain orphans",
        "replay",
    ),
    arrow=True,
)


def _open_mirror(pipeline: MirrorPipeline, **engine: Any) -> AnyPlane:
    from calve.sink_core.mirror.plane import MirrorPlane

    return MirrorPlane(pipeline, **engine)


_MIRROR = "calve.orchestration.cli.mirror"
MIRROR = Kind(
    _open_mirror,
    _start_slots,
    does={
        "check": f"{_MIRROR}.check:checkup",
        "plan": "calve.sink_core.mirror.preview:preview",
        "positions export --to": f"{_MIRROR}.mm2:export",
        "positions import --from": f"{_MIRROR}.mm2:import_",
        "positions set": f"{_MIRROR}.positions:set_",
        "positions show": f"{_MIRROR}.positions:show",
        "resolve": "calve.orchestration.cli.answers:of_mirror",
        "run": "calve.sink_core.mirror.run:run_mirror",
        "status": "calve.sink_core.mirror.status:status",
        "verify": "calve.sink_core.mirror.verify:verify",
    },
    own=("groups show", "groups sync"),
)


def _open_source(pipeline: SourcePipeline, **engine: Any) -> AnyPlane:
    from calve.sink_core.source.plane import SourcePlane

    return SourcePlane(pipeline, **engine)


_SOURCE = "calve.orchestration.cli.source"
SOURCE = Kind(
    _open_source,
    _start_slots,
    does={
        "check": f"{_SOURCE}.check:checkup",
        "plan": "calve.sink_core.source.status:preview",
        "positions reset": f"{_SOURCE}.positions:reset",
        "positions set --partition": f"{_SOURCE}.positions:set_",
        "positions show": f"{_SOURCE}.positions:show",
        "run": "calve.sink_core.source.run:run_source",
        "status": "calve.sink_core.source.status:status",
        "verify": "calve.sink_core.source.verify:verify",
    },
)

KINDS: dict[str, Kind] = {"sink": SINK, "mirror": MIRROR, "source": SOURCE}
"""By the kind's name."""

"""What the command line needs of each kind of pipeline: one is added here, and in `sink_core/config/kinds.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calve.sink_core.config.mirror_pipeline import MirrorPipeline
    from calve.sink_core.config.sink_pipeline import SinkPipeline
    from calve.sink_core.control.plane import AnyPlane

OF_ALL = ("config", "maintain keep-alive", "maintain trim", "pause", "resume")
"""The commands of every kind: they need a pipeline's files and its control plane, and no more."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`open` connects to the control plane of one of its pipelines. `own` are its commands beside those of all."""

    open: Callable[[Any], AnyPlane]
    own: tuple[str, ...] = ()

    @property
    def commands(self) -> list[str]:
        return sorted((*OF_ALL, *self.own))


def _open_sink(pipeline: SinkPipeline) -> AnyPlane:
    from calve.sink_core.sink.loop.session import Session

    return Session.open(pipeline)


SINK = Kind(
    _open_sink,
    own=(
        "check",
        "commit",
        "dead-letters list",
        "dead-letters replay",
        "drill",
        "maintain compact",
        "maintain expire",
        "maintain manifests",
        "maintain orphans",
        "plan",
        "positions export",
        "positions import",
        "replay",
        "resolve",
        "run",
        "status",
        "verify",
    ),
)


def _open_mirror(pipeline: MirrorPipeline) -> AnyPlane:
    from calve.sink_core.mirror.plane import MirrorPlane

    return MirrorPlane(pipeline)


MIRROR = Kind(_open_mirror)

KINDS: dict[str, Kind] = {"sink": SINK, "mirror": MIRROR}
"""By the kind's name."""

"""What ends each benchmark: that it measured a pipeline which lost nothing and doubled nothing."""

from __future__ import annotations

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.verify.proof import verify


def prove(pipeline: SinkPipeline) -> None:
    """Raises SystemExit with what `calve verify` found."""
    with Session.open(pipeline) as session:
        proof = verify(session, deep=False)
    if not proof.proven:
        raise SystemExit(f"{pipeline.name} is not proven: {'; '.join(map(str, proof.violations))}")

"""Does the control topic hold something that a run would stop on?"""

from __future__ import annotations

from calve.sink_core.config.sink_pipeline import SinkPipeline
from calve.sink_core.control.checking.checklist import Note
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.range_jobs.missing import check_stated


def pipeline_state(pipeline: SinkPipeline) -> str | Note:
    """What a run would find: another catalog than it was bound to, topics made anew, positions that are gone.

    Raises what a run would raise: FindingError, and ConfigError for a table that was added without `history`.
    """
    with Session.open(pipeline) as session:
        if not session.read_only():
            return "has not run yet"
        session.check_bound()
        state = session.log.state
        if state.last_publish is None:
            return "has published nothing yet"
        check_stated(session.pipeline.tables, state)
        Planner(session).look()
        if state.paused is not None:
            return Note(f"{state.paused}: runs read nothing", "calve resume FILE ends the pause")
        return f"{state.published:,} batches published, and nothing stands against the next one"

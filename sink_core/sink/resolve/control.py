"""The answer to a finding on what a pipeline is bound to: move.

Crash point (the whole table is in docs/design.md):

    resolve.after-rebind    the pipeline is bound to the new catalog, and no RESOLVED says so
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from time import time_ns

from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.control.events import CALVE_VERSION, PipelineBound
from calve.sink_core.errors import FindingError
from calve.sink_core.failpoints import reach
from calve.sink_core.sink.loop.session import Session


def move(session: Session, found: FindingError) -> Answer:
    """Bind the pipeline to the catalog that its file names now, if every table there is as the log knows it."""
    bound = _bound(session, found)
    tables = _compared(session, found)

    def carry_out() -> Lines:
        session.log.refresh_to_end()
        if _bound(session, found) != bound:
            raise overtaken(session, "the pipeline was bound anew")
        _compared(session, found)
        again = replace(
            bound,
            event_id=str(uuid.uuid4()),
            written_at_ms=time_ns() // 1_000_000,
            calve_version=CALVE_VERSION,
            fingerprint=session.pipeline.catalog_fingerprint,
        )
        session.log.append(again)
        reach("resolve.after-rebind")
        return (f"pipeline {found.subject} is bound to {again.fingerprint}",)

    lines = (f"catalog: {found.stored} → {found.found}", f"{tables} tables are there as the control topic knows them")
    return Answer(lines, carry_out)


def _bound(session: Session, found: FindingError) -> PipelineBound:
    bound = session.log.state.bound
    if bound is None:
        raise no_answer(found, "move", "the control topic has no binding")
    return bound


def _compared(session: Session, found: FindingError) -> int:
    """The number of tables of the pipeline in the new catalog, none of which contradicts the log."""
    names = {*session.pipeline.table_names, *session.log.state.tables}
    for name in sorted(names):
        finding = session.look(name).finding
        if finding is not None:
            raise no_answer(found, "move", f"the tables there are not those of this pipeline: {finding.message}")
    return len(names)

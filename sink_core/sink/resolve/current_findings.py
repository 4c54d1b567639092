"""Which findings stand now, by the checks that every run and every commit makes."""

from __future__ import annotations

from calve.sink_core.control.answers import raised
from calve.sink_core.errors import FindingError
from calve.sink_core.sink.loop.planning import Planner
from calve.sink_core.sink.loop.session import Session


def current_findings(session: Session) -> list[FindingError]:
    """The findings on the pipeline, those on its tables last; binds the session.

    One on binding or control topic hides all others: nothing else can be compared then. Raises what can't be reached.
    """
    found = list(raised(session.bind))
    if found:
        return found
    planner = Planner(session)
    found += raised(planner.look)
    for name in dict.fromkeys([*session.pipeline.table_names, *session.log.state.tables]):
        found += raised(lambda name=name: session.check_table(name, planner.first_coverage))
    return found

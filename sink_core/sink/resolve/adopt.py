"""The answer to a table that another pipeline feeds with the same records: it may.

Kept as a property of the table, where whoever wonders about its rows finds it, and may take it off again. Said twice it
is the same; killed before RESOLVED (`resolve.after-effect`), the finding is gone all the same.
"""

from __future__ import annotations

from calve.sink_core.control.answers import Answer, Lines, no_answer, overtaken
from calve.sink_core.errors import FindingError
from calve.sink_core.iceberg.commit.table_property import change_property
from calve.sink_core.iceberg.examine.table import load_viewed
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.tables.history.record import name_of


def adopt(session: Session, found: FindingError) -> Answer:
    """Let every pipeline that writes to the table now feed it with whatever it reads."""
    name, mine = found.subject, session.pipeline.config.first_name
    loaded = load_viewed(session.catalog, name, tag=session.pipeline.tag, keys=session.keys)
    if loaded is None:
        raise overtaken(session, f"{name} was dropped")
    others = loaded[1].others.keys() - loaded[1].adopted
    if any(name_of(group) == mine for group in others):
        why = f"two pipelines named {mine} have one tag and one ledger; give this one another name, or another catalog"
        raise no_answer(found, "adopt", why)
    names = ", ".join(sorted(others))
    line = f"{name}: {names} and this pipeline may both feed it; records that both read are in it twice"
    return Answer((line,), lambda: _carry_out(session, name, frozenset(others), line))


def _carry_out(session: Session, name: str, others: frozenset[str], line: str) -> Lines:
    def with_others(adopted: str) -> str:
        return ",".join(sorted(others.union(filter(None, adopted.split(",")))))

    if not change_property(session.catalog, name, session.keys.adopted, with_others):
        raise overtaken(session, f"{name} was dropped")
    return (line,)

"""The answer to a table that another pipeline feeds with the same records: it may.

Kept as a property of the table, where whoever wonders about its rows finds it, and may take it off again. Said twice it
is the same; killed before RESOLVED (`resolve.after-effect`), the finding is gone all the same.
"""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from calve.sink_core.errors import FindingError
from calve.sink_core.iceberg.catalog.opening import unreachable_as_ours
from calve.sink_core.iceberg.commit.properties import name_of
from calve.sink_core.iceberg.commit.swap import ATTEMPTS, gave_up
from calve.sink_core.iceberg.commit.view import view_of
from calve.sink_core.iceberg.create.tables import load_if_there
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve.answer import Answer, Lines, no_answer, overtaken
from calve.sink_core.timing import back_off


def adopt(session: Session, found: FindingError) -> Answer:
    """Let every pipeline that writes to the table now feed it with whatever it reads."""
    table, mine = load_if_there(session.catalog, found.subject), session.pipeline.config.first_name
    if table is None:
        raise overtaken(session, f"{found.subject} was dropped")
    view = view_of(table.metadata, table=found.subject, tag=session.pipeline.tag, keys=session.keys)
    others = view.others.keys() - view.adopted
    if any(name_of(group) == mine for group in others):
        why = f"two pipelines named {mine} have one tag and one ledger; give this one another name, or another catalog"
        raise no_answer(found, "adopt", why)
    names = ", ".join(sorted(others))
    line = f"{found.subject}: {names} and this pipeline may both feed it; records that both read are in it twice"
    return Answer((line,), lambda: _carry_out(session, found, frozenset(others), line))


def _carry_out(session: Session, found: FindingError, others: frozenset[str], line: str) -> Lines:
    name, lost_to = found.subject, None
    for attempt_number in range(ATTEMPTS):
        table = load_if_there(session.catalog, name)
        if table is None:
            raise overtaken(session, f"{name} was dropped")
        view = view_of(table.metadata, table=name, tag=session.pipeline.tag, keys=session.keys)
        adopted = {session.keys.adopted: ",".join(sorted(view.adopted | others))}
        asserted = (AssertTableUUID(uuid=table.metadata.table_uuid),)
        try:
            with unreachable_as_ours(f"setting a property of {name}"):
                session.catalog.commit_table(table, asserted, (SetPropertiesUpdate(updates=adopted),))
        except (CommitFailedException, CommitStateUnknownException) as error:
            lost_to = error
            back_off(attempt_number)
        else:
            return (line,)
    raise gave_up(name, lost_to)

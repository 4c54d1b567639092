"""Answers to the findings of a sink: which there are, and the function for each choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calve.sink_core import findings
from calve.sink_core.control.answers import Answer, Answers
from calve.sink_core.errors import FindingError
from calve.sink_core.sink.loop.session import Session
from calve.sink_core.sink.resolve import adopt, control, ledger, positions, rebuild, tables
from calve.sink_core.sink.resolve.current_findings import current_findings
from calve.sink_core.sink.resolve.refill import refill

REFILL = "refill"

_TABLES = {"accept": tables.accept, "recommit": tables.recommit, REFILL: refill}
_OTHER_TABLES = {"accept": tables.accept, "rebuild": ledger.rebuild, REFILL: refill}

RESOLVERS: Mapping[tuple[str, str], Callable[[Session, FindingError], Answer]] = {
    (finding.name, choice): resolver
    for finding, resolvers in {
        findings.POSITIONS_MISSING: {"restore": positions.restore},
        findings.POSITIONS_CHANGED: {"restore": positions.restore, "accept": positions.accept},
        findings.POSITIONS_BEYOND_END: {"restore": positions.restore},
        findings.RECORDS_LOST: {"skip": positions.skip},
        findings.TOPIC_RECREATED: {"restart": positions.restart},
        findings.OTHER_CATALOG: {"move": control.move},
        findings.CONTROL_TOPIC_RECREATED: {"rebuild": rebuild.rebuild},
        findings.CONTROL_TOPIC_TRUNCATED: {"rebuild": rebuild.rebuild},
        findings.FOREIGN_EVENTS: {"rebuild": rebuild.rebuild},
        findings.TABLE_FED_TWICE: {"adopt": adopt.adopt},
        findings.TABLE_ROLLED_BACK: _TABLES,
        findings.TABLE_RESTORED: _TABLES,
        findings.TAG_REMOVED: _TABLES,
        findings.TABLE_RECREATED: _OTHER_TABLES,
        findings.TABLE_DROPPED: _OTHER_TABLES,
    }.items()
    for choice, resolver in resolvers.items()
}


def answers_of(session: Session) -> Answers[Session]:
    """What can be done about the findings of a sink."""
    return Answers(session, lambda: current_findings(session), RESOLVERS)

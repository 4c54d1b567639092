"""The Hudi tables of a pipeline as they are, and what they contradict the control log by. Reads files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from calve.sink_core.finding import Finding
from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.timeline import is_archived, read_properties, read_timeline
from calve.sink_core.hudi.java.client import UUID
from calve.sink_core.hudi.table.table import HudiTable
from calve.sink_core.hudi.table.view import view_of
from calve.sink_core.tables.format.lake import ReadLog
from calve.sink_core.tables.history.findings import AncestryCut, Identity, compare, dropped
from calve.sink_core.tables.history.record import SummaryKeys


@dataclass(frozen=True, slots=True)
class Examined:
    """A table as loaded, None if there is none of that name, and what it contradicts the log by."""

    table: HudiTable | None
    finding: Finding | None


@dataclass(frozen=True, slots=True)
class HudiTables:
    """Tables by name. `place_of` says where one is, `now` what the log and its cluster are."""

    place_of: Callable[[str], Place]
    keys: SummaryKeys
    now: Identity
    log: ReadLog

    def load(self, name: str) -> HudiTable | None:
        """The table as its files are; None if there is none."""
        place = self.place_of(name)
        properties = read_properties(place)
        if properties is None:
            return None
        timeline, uuid = read_timeline(place), properties.get(UUID, "")
        view = view_of(timeline, table=name, uuid=uuid, keys=self.keys, archived=is_archived(place))
        return HudiTable(name, place, properties, timeline, view, self.keys)

    def examine(self, name: str) -> Examined:
        """The table, compared with the log. The log is read before the table, and on where the table has more than was
        read of it: another coordinator has committed that. Raises what reading was broken off by.
        """
        self.log.require_whole()
        state, table = self.log.state, self.load(name)
        while table is not None and table.stored_offset > state.next_offset:
            state = self.log.refresh()
            if table.stored_offset > state.next_offset:
                break
            table = self.load(name)
        if table is None:
            return Examined(None, dropped(name, state))
        found = compare(table.view, state, self.now)
        finding = found.finding if isinstance(found, AncestryCut) else found
        return Examined(table, _answered(finding) if finding else None)


def _answered(finding: Finding) -> Finding:
    """With the choices that there are: files of a batch are not kept once its table has reported it."""
    return replace(finding, choices=tuple(choice for choice in finding.choices if choice != "recommit"))

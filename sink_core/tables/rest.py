"""REST catalogs, asked with a limit: pyiceberg's own client waits for ever for one that hangs."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session

from sink_core.tables.clock import NotUpdatedPast

CONNECT_S, ANSWER_S = 10.0, 60.0
"""Seconds to connect, and between two pieces of an answer."""


class BoundedRestCatalog(RestCatalog):
    """pyiceberg's REST catalog whose every request ends; one that is given up raises requests' Timeout."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        send = session.send

        def bounded(request: PreparedRequest, **options: Any) -> Response:
            return send(request, **{**options, "timeout": options.get("timeout") or (CONNECT_S, ANSWER_S)})

        session.send = bounded
        return session

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """What the protocol has no word for is left out."""
        known = tuple(each for each in requirements if not isinstance(each, NotUpdatedPast))
        return super().commit_table(table, known, updates)

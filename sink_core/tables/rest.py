"""REST catalogs, asked with a limit: pyiceberg's own client waits for ever for one that hangs."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session

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

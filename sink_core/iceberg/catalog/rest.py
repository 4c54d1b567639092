"""REST catalogs, asked with a limit and asked again: pyiceberg's own client does neither."""

from __future__ import annotations

from http.client import NOT_FOUND
from typing import Any

from pyiceberg.exceptions import RESTError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, Retry
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError, ReadTimeoutError

from calve.sink_core.iceberg.catalog.clock import NotUpdatedPast
from calve.sink_core.iceberg.catalog.compat import OpenRestCatalog

CONNECT_S, ANSWER_S = 10.0, 60.0
"""Seconds to connect, and between two pieces of an answer."""

READS = 4
"""How often a question is asked again. What changes something is for the one who asked: it may have been done."""

BACK_OFF_S = 0.25
"""The second repetition waits twice this, each further one twice as long as the one before."""

LONGEST_S = 20.0
"""Waited at most before a repetition, whatever the catalog's Retry-After asks for."""

_SHOWN_CHARACTERS = 80


class NotACatalog(RESTError):
    """What answered is a web page: of a log-in, of a proxy, or at an address that is not the catalog's."""


class BoundedRestCatalog(OpenRestCatalog):
    """pyiceberg's REST catalog whose every request ends; one that is given up raises requests' Timeout.

    Questions to a catalog that can't answer just now are repeated. A page in place of an answer raises NotACatalog.
    """

    def prepared(self, session: Session) -> Session:
        for adapter in session.adapters.values():
            if isinstance(adapter, HTTPAdapter):
                adapter.max_retries = Repeated(
                    READS,
                    allowed_methods=("GET", "HEAD"),
                    status_forcelist=(429, 502, 503, 504),
                    backoff_factor=BACK_OFF_S,
                    # The last answer says more than that there were too many.
                    raise_on_status=False,
                )
        send = session.send

        def bounded(request: PreparedRequest, **options: Any) -> Response:
            answer = send(request, **{**options, "timeout": options.get("timeout") or (CONNECT_S, ANSWER_S)})
            _check_no_page(answer)
            return answer

        session.send = bounded
        return session

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """What the protocol has no word for is left out."""
        known = tuple(each for each in requirements if not isinstance(each, NotUpdatedPast))
        return super().commit_table(table, known, updates)


class Repeated(Retry):
    """urllib3's repetitions, each after at most `LONGEST_S`, and none after a time-out: that was wait enough."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        asked_s = super().get_retry_after(response)
        return None if asked_s is None else min(asked_s, LONGEST_S)

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        *further: Any,
        **named: Any,
    ) -> Repeated:
        if isinstance(error, ReadTimeoutError):
            raise error
        if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
            raise MaxRetryError(named["_pool"], url, error)
        return super().increment(method, url, response, error, *further, **named)


def _check_no_page(answer: Response) -> None:
    # A 404 would otherwise be taken for a table that is not there. Other errors are errors, however they are written.
    is_answer = answer.ok or answer.status_code == NOT_FOUND
    if is_answer and answer.content and answer.headers.get("content-type", "").startswith("text/html"):
        asked = f"{answer.request.method} {answer.request.path_url}"
        shown = " ".join(answer.text.split())[:_SHOWN_CHARACTERS]
        raise NotACatalog(f"{asked} was answered {answer.status_code} with a page: {shown}")

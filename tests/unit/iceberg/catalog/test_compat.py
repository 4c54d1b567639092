"""Names that pyiceberg's REST catalog keeps to itself are there, and are what Calve takes them for."""

from __future__ import annotations

import inspect

import pytest
from pyiceberg.catalog.rest import RestCatalog
from requests import Session

from calve.sink_core.iceberg.catalog.compat import OpenRestCatalog


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("_delete_old_metadata", ["io", "base", "metadata"]), ("_create_session", ["self"])],
)
def test_a_function_is_there_with_its_parameters(name: str, parameters: list[str]) -> None:
    assert hasattr(RestCatalog, name), f"pyiceberg has no RestCatalog.{name} any more"
    found = list(inspect.signature(getattr(RestCatalog, name)).parameters)
    assert found == parameters, f"pyiceberg has changed RestCatalog.{name}"


def test_a_rest_catalog_asks_by_the_session_that_was_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Session] = []

    class Noting(OpenRestCatalog):
        def prepared(self, session: Session) -> Session:
            prepared.append(session)
            return session

    monkeypatch.setattr(RestCatalog, "_fetch_config", lambda _self: None)
    catalog = Noting("lake", uri="http://127.0.0.1:9")
    assert vars(catalog)["_session"] is prepared[0]

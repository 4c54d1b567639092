"""The address of a database is parsed once: libpq is given its parts, and has nothing to quote."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.source.postgres.connecting import keywords
from tests.codes import raises

ODD = "p%x9/@ #1:?"


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("postgresql://ann@db/shop", {"user": "ann", "host": "db", "dbname": "shop"}),
        ("postgresql+psycopg2://db:5433/shop?sslmode=require", {"host": "db", "port": 5433, "sslmode": "require"}),
        (f"postgresql://ann:{ODD}@db/shop", {"password": ODD, "host": "db", "dbname": "shop"}),
        (f"postgresql://ann:{quote(ODD, safe='')}@db/shop", {"password": ODD, "host": "db"}),
        ("postgresql://a:b@one:1,two:2/shop", {"host": "one,two", "port": "1,2", "user": "a", "password": "b"}),
        ("postgresql://one,two/shop?target_session_attrs=primary", {"host": "one,two", "dbname": "shop"}),
        ("postgresql://ann@[::1]:5433/shop", {"host": "::1", "port": 5433}),
        ("postgresql://ann@/shop?host=/run/postgresql", {"host": "/run/postgresql", "dbname": "shop"}),
    ],
)
def test_libpq_is_given_the_parts(address: str, parts: dict[str, Any]) -> None:
    assert keywords(address).items() >= parts.items()


@pytest.mark.parametrize(
    "address", ["postgresql://ann:s3cret@db:port/shop", "mysql://ann:s3cret@db/shop", "host=db dbname=shop"]
)
def test_what_is_no_address_is_refused_without_its_password(address: str) -> None:
    with raises(Code.NO_DATABASE) as raised:
        keywords(address)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__

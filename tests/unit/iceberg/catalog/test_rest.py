from __future__ import annotations

import pytest
from urllib3 import HTTPConnectionPool, HTTPResponse
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError, ReadTimeoutError

from calve.sink_core.iceberg.catalog.rest import LONGEST_S, Repeated


def test_a_catalog_that_asks_for_patience_is_given_a_bounded_one() -> None:
    repeated = Repeated(4)
    assert repeated.get_retry_after(HTTPResponse(headers={"Retry-After": "3"})) == 3
    assert repeated.get_retry_after(HTTPResponse(headers={"Retry-After": "3600"})) == LONGEST_S
    assert repeated.get_retry_after(HTTPResponse()) is None


def test_a_time_out_is_waited_for_once() -> None:
    pool = HTTPConnectionPool("localhost")
    with pytest.raises(ReadTimeoutError):
        Repeated(4).increment("GET", "/", error=ReadTimeoutError(pool, "/", "no answer"), _pool=pool)
    with pytest.raises(MaxRetryError, match="no way there"):
        Repeated(4).increment("GET", "/", error=ConnectTimeoutError("no way there"), _pool=pool)
    refused = NewConnectionError(pool.ConnectionCls("localhost"), "refused")
    assert Repeated(4).increment("GET", "/", error=refused, _pool=pool).total == 3

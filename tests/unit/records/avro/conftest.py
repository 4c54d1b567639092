"""Each test of Avro is of both readers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from calve.sink_core import compiled


@pytest.fixture(autouse=True, scope="module", params=["numpy", "kernel"])
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has records that are read at once read by numpy, or by the kernel."""
    by_kernel = request.param == "kernel"
    if by_kernel:
        import_module(compiled.AVRO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "usable", lambda *_: by_kernel)
        yield

"""Kernels are compiled once for a machine, loaded where they are worth it, and not missed where they can't be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from calve.sink_core import compiled

ASKING = """
import json, sys
from calve.sink_core import compiled
few, many, most = 1, compiled.WORTH_LOADING, compiled.WORTH_COMPILING
asked = [compiled.usable(compiled.AVRO, records) for records in (few, many, most)]
from calve.sink_core.records.avro import kernel
print(json.dumps({
    "asked": asked,
    "then": compiled.usable(compiled.AVRO, few),
    "loaded": sum(kernel.read.stats.cache_hits.values()),
}))
"""


def asked_in(directory: Path) -> dict[str, object]:
    """What another process finds, in which the kernel of Avro is loaded after it was asked for."""
    environment = {"CALVE_COMPILED": str(directory), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", ASKING], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


def test_a_kernel_is_compiled_by_the_first_process_and_loaded_by_others(tmp_path: Path) -> None:
    assert asked_in(tmp_path) == {"asked": [False, False, True], "then": True, "loaded": 0}
    assert asked_in(tmp_path) == {"asked": [False, True, True], "then": True, "loaded": 1}


def test_without_numba_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, compiled.AVRO, raising=False)
    compiled.lacks.cache_clear()
    try:
        assert compiled.lacks() == "numba is not installed"
        assert not compiled.usable(compiled.AVRO, compiled.WORTH_COMPILING)
        assert set(compiled.prepare().values()) == {"numba is not installed"}
    finally:
        compiled.lacks.cache_clear()

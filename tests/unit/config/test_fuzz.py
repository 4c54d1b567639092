"""Whatever stands in the files, loading them gives a pipeline or says what to correct."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calve.sink_core.config.load import CONNECTIONS_FILE, load
from calve.sink_core.errors import ConfigError
from tests.fuzz import mutated
from tests.unit.config.files import CONNECTIONS, PIPELINE

FULL: dict[str, Any] = PIPELINE | {
    "dead_letters": {"table": "air.dead", "stop_above": "5%"},
    "batch": {"max_records": 5, "max_bytes": "1GiB"},
    "run": {"linger": "5s", "max_batches": 3},
    "maintenance": {"compact": {"schedule": "30 2 * * *"}},
}
FILES = {"pipeline.yaml": FULL, CONNECTIONS_FILE: CONNECTIONS}
VALID = {name: yaml.safe_dump(content, sort_keys=False).encode() for name, content in FILES.items()}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
ANYTHING = st.recursive(
    SCALARS, lambda s: st.lists(s, max_size=3) | st.dictionaries(st.text(max_size=6) | st.integers(), s, max_size=3)
)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def load_these(directory: Path, files: dict[str, bytes]) -> None:
    for name, content in (VALID | files).items():
        (directory / name).write_bytes(content)
    with suppress(ConfigError):
        load(directory / "pipeline.yaml")


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=250)
@given(content=st.binary(max_size=60) | mutated(st.sampled_from(sorted(VALID.values()))))
@example(content=b"a: " + b"[" * 50_000)
@example(content=b"a: " + b"{a: " * 5_000 + b"}" * 5_000)
@example(content=b"a: &a [*a]")
@example(content=b"a: &a {b: *a}\n<<: *a")
@example(content=b"? [1]\n: 2")
@example(content=b"name: !!python/object/apply:os.system [false]")
@example(content=b"at: 2020-99-99")
@example(content=b"name: 0b\n")
@example(content=b"name: -:9")
def test_bytes(name: str, content: bytes, directory: Path) -> None:
    load_these(directory, {name: content})


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=250)
@given(data=st.data())
def test_values_of_any_kind_at_any_key(name: str, data: st.DataObject, directory: Path) -> None:
    key = data.draw(st.sampled_from(sorted(FILES[name])))
    given_there = data.draw(ANYTHING)
    inner = FILES[name][key]
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        given_there = {**inner, data.draw(st.sampled_from(sorted(inner))): given_there}
    load_these(directory, {name: yaml.safe_dump({**FILES[name], key: given_there}).encode()})

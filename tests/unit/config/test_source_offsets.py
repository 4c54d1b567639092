"""Whose source offsets a pipeline file says to go on from, and what is refused of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.sink_core.config.load import load_as
from calve.sink_core.config.source_pipeline import SourcePipeline
from tests.unit.config.files import refused

FILE = {
    "name": "shop",
    "kind": "source",
    "source": {"type": "my.shop:Shop"},
    "target": {"kafka": {"bootstrap.servers": "b:9092"}},
}
CONNECT = {"connect": {"group": "cg", "connector": "orders"}, "offsets": {"topic": "connect-offsets"}}


def loaded(directory: Path, **more: Any) -> SourcePipeline:
    (file := directory / "source.yaml").write_text(yaml.safe_dump({**FILE, **more}))
    return load_as(SourcePipeline, file)


def test_with_a_connector_ids_keys_and_topic_are_those_of_its_worker(tmp_path: Path) -> None:
    own, shared = loaded(tmp_path), loaded(tmp_path, **CONNECT)
    assert (own.slot_id(3), own.connector) == ("calve.default.shop.slot-3", "shop")
    assert own.offsets_topic == "calve.default.shop.offsets"
    assert (shared.slot_id(3), shared.connector, shared.offsets_topic) == ("cg-orders-3", "orders", "connect-offsets")
    assert shared.describe()["derived"]["slots"] == "cg-orders-N"
    # What is the pipeline's own stays so.
    assert (shared.group, shared.transactional_id) == (own.group, own.transactional_id)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"connect": CONNECT["connect"]}, ["offsets.topic", "connect"]),
        ({"offsets": {"topic": "x", "migrate_from": "x"}}, ["offsets.migrate_from", "offsets.topic"]),
    ],
)
def test_offsets_that_can_not_be_gone_on_from_are_refused(
    tmp_path: Path, more: dict[str, Any], named: list[str]
) -> None:
    with refused("source.yaml", *named):
        loaded(tmp_path, **more)

"""Names of the timeline's files, and moments as it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import HudiSettings
from calve.sink_core.hudi.files.place import Place, place_of, warehouse_of
from calve.sink_core.hudi.files.timeline import instant_ms, instant_text, read_properties, read_timeline
from tests.codes import raises

T1, T2, C1 = "20260101000000000", "20260101000001000", "20260101000002000"


def test_a_moment_is_the_same_there_and_back() -> None:
    assert instant_text(1_767_225_600_004) == "20260101000000004"
    assert instant_ms("20260101000000004") == 1_767_225_600_004


def test_instants_are_told_by_their_names(tmp_path: Path) -> None:
    place = Place(tmp_path, tmp_path)
    place.timeline.mkdir(parents=True)
    for name in (
        f"{T1}.commit.requested",
        f"{T1}.inflight",
        f"{T1}_{C1}.commit",
        f"{T2}.clustering.requested",
        f"{T2}.clustering.inflight",
        f".{T1}.inflight.crc",
        "history",
    ):
        (place.timeline / name).touch()
    timeline = read_timeline(place)
    assert [(each.requested, each.completed) for each in timeline.commits] == [(T1, C1)]
    assert {each.state for each in timeline.at(T1)} == {"requested", "inflight", "completed"}
    assert [each.requested for each in timeline.pending(("clustering", "commit"))] == [T2]


def test_properties_are_java_s(tmp_path: Path) -> None:
    place = Place(tmp_path / "t", tmp_path / ".calve" / "t")
    assert read_properties(place) is None
    place.properties.parent.mkdir(parents=True)
    place.properties.write_text('#comment\nhoodie.table.name=t\nhoodie.schema={"type"\\:"record"}\nx=\\u00fc\n')
    assert read_properties(place) == {"hoodie.table.name": "t", "hoodie.schema": '{"type":"record"}', "x": "ü"}


def test_a_table_is_where_its_name_says() -> None:
    place = place_of(Path("/data"), "air.flights")
    assert (place.folder, place.lock) == (Path("/data/air/flights"), Path("/data/air/.calve/flights/lock"))


@pytest.mark.parametrize("named", ["/data/hudi", "file:/data/hudi", "file:///data/hudi"])
def test_a_warehouse_is_a_folder(named: str) -> None:
    assert warehouse_of(HudiSettings("h", named, {})) == Path("/data/hudi")


def test_a_warehouse_in_an_object_store_is_refused() -> None:
    with raises(Code.NO_LOCAL_WAREHOUSE, "hudi.warehouse", "s3://b/x", "s3"):
        warehouse_of(HudiSettings("h", "s3://b/x", {}))

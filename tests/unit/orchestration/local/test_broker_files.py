"""The broker's settings as they are written."""

from __future__ import annotations

from pathlib import Path

from calve.orchestration.local import broker_files


def test_added_listeners_join_ours_and_other_properties_win() -> None:
    given = {"listeners": "SASL_SSL://127.0.0.1:9094", "auto.create.topics.enable": "true"}
    settings = broker_files.settings(Path("/d"), "127.0.0.1", 9092, 9093, given)
    expected = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,SASL_SSL://127.0.0.1:9094"
    assert settings["listeners"] == expected
    assert settings["auto.create.topics.enable"] == "true"


def test_cluster_ids_are_what_kafka_accepts() -> None:
    ids = {broker_files.new_cluster_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)

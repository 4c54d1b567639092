"""Topics of four formats, tables with rules, bad records and a kill -9: every record in exactly one accounted place."""

from __future__ import annotations

from pathlib import Path

from calve.orchestration.local.broker import Broker
from tests.e2e.routed import Routed, without_registry
from tests.warm_spark import WarmSpark


def test_a_killed_run_of_many_tables_loses_and_doubles_nothing(
    tmp_path: Path, broker: Broker, warm_spark: WarmSpark
) -> None:
    formats, spark = without_registry(tmp_path), warm_spark.settings
    routed = Routed.make(tmp_path, broker.bootstrap, formats, records=12_000, max_records=8_000, spark=spark)
    assert routed.run(killed_at="publish.after-commit@2") == -9
    assert routed.run() == 0
    assert routed.check()["records"] == 12_000

from __future__ import annotations

import json

from calve.sink_core.tables.proof import SHOWN_PER_KIND, Evidence


def test_a_report_is_proven_until_something_is_violated_and_survives_json() -> None:
    evidence = Evidence()
    evidence.skipped("air.flights", "expired")
    evidence.count("records", 3)
    report = evidence.report("flights", deep=True)
    assert report.proven
    evidence.violation("ledger-gap", "flights[3]", "140 offsets", ranges=("flights[3] [100, 240)",), batches=("b1",))
    report = evidence.report("flights", deep=True)
    assert not report.proven
    shown = json.loads(json.dumps(report.to_json()))
    assert shown["proven"] is False
    assert shown["violations"][0]["ranges"] == ["flights[3] [100, 240)"]
    assert shown["facts"] == {"records": 3}


def test_many_violations_of_one_kind_are_counted_and_the_same_one_only_once() -> None:
    evidence = Evidence()
    for number in range(SHOWN_PER_KIND + 5):
        evidence.violation("offset-twice", "t", f"number {number}")
        evidence.violation("offset-twice", "t", f"number {number}")
    report = evidence.report("p", deep=False)
    assert len(report.violations) == SHOWN_PER_KIND
    assert report.left_out["offset-twice"] >= 5

from __future__ import annotations

from dataclasses import replace

from calve.sink_core.control.events import Event
from calve.sink_core.offsets import TopicPartition
from calve.sink_core.sink.ledger.rows import former_place
from calve.sink_core.sink.verify.history import History
from calve.sink_core.tables.log.events import TableCheckpoint
from calve.sink_core.tables.proof import Evidence
from tests.codes import names
from tests.unit.sink.verify.hand_made import AT, DATA, bootstrapped, complete, history, kinds, publish, row, written


def test_a_chain_from_the_bootstrap_on_is_accepted() -> None:
    evidence = Evidence()
    seen = history(bootstrapped(("b1", [row("b1", 5, 10)]), ("b2", [row("b2", 10, 30)]), begin=5), evidence)
    assert kinds(evidence) == []
    assert (seen.begins, seen.positions) == ({AT: 5}, {AT: 30})
    assert seen.batches["b2"].rows[DATA] == 20


def test_a_batch_that_does_not_continue_the_one_before_is_named_with_both() -> None:
    evidence = Evidence()
    history([*bootstrapped(("b1", [row("b1", 0, 10)])), *publish("b3", "b2", [row("b3", 10, 20)])], evidence)
    (violation,) = evidence.violations
    assert violation.kind == "batch-chain"
    names(violation.message, "b3", "b2", "b1")


def test_positions_that_move_back_are_named_with_both_values() -> None:
    evidence = Evidence()
    history([*bootstrapped(("b1", [row("b1", 0, 10)])), complete("b2", "b1", {AT: 4})], evidence)
    (violation,) = evidence.violations
    assert (violation.kind, violation.subject) == ("positions-moved-back", "flights[3]")
    names(violation.message, 10, 4)


def test_a_batch_published_twice_and_one_without_its_completion_are_named() -> None:
    again = bootstrapped(("b1", [row("b1", 0, 10)]))[-1]
    evidence = Evidence()
    history([*bootstrapped(("b1", [row("b1", 0, 10)])), again, written("b9", DATA, 1)], evidence)
    assert "batch-published-twice" in kinds(evidence)
    assert evidence.violations[-1].kind == "batch-incomplete"
    assert evidence.violations[-1].batches == ("b9",)


def test_a_table_that_the_completion_does_not_name_is_a_violation() -> None:
    events = bootstrapped(("b1", [row("b1", 0, 10)]))
    events[-1] = replace(events[-1], tables=(DATA,))
    evidence = Evidence()
    history(events, evidence)
    assert kinds(evidence) == ["batch-incomplete"]


def test_a_range_job_moves_no_position() -> None:
    evidence = Evidence()
    job = replace(complete("r1", "", {}), kind="range")
    seen = history(
        [*bootstrapped(("b1", [row("b1", 0, 10)])), job, *publish("b2", "b1", [row("b2", 10, 11)])], evidence
    )
    assert kinds(evidence) == []
    assert seen.positions == {AT: 11}


def test_a_batch_planned_after_a_giving_up_continues_the_publish_before_it() -> None:
    evidence = Evidence()
    history([*bootstrapped(("b1", [row("b1", 0, 10)])), *publish("b2", "b1+mark", [row("b2", 10, 20)])], evidence)
    assert kinds(evidence) == []
    history([*bootstrapped(("b1", [row("b1", 0, 10)])), *publish("b2", "b0+mark", [row("b2", 10, 20)])], evidence)
    assert kinds(evidence) == ["batch-chain"]


def of(*events: Event, base: TableCheckpoint, start: int, evidence: Evidence) -> History:
    """A trimmed log that begins at `start`."""
    seen = History("control", base)
    for offset, event in enumerate(events, start):
        seen.apply(offset, event, evidence)
    seen.finish(evidence)
    return seen


def test_after_trimming_the_checkpoint_is_what_the_next_batch_continues() -> None:
    base, evidence = checkpoint(40, "b7", 100), Evidence()
    seen = of(base, *publish("b8", "b7", [row("b8", 100, 120)]), base=base, start=41, evidence=evidence)
    assert kinds(evidence) == []
    assert seen.positions == {AT: 120}
    assert seen.begins == {AT: 5}
    of(base, *publish("b8", "b6", [row("b8", 100, 120)]), base=base, start=41, evidence=evidence)
    of(base, *publish("b8", "b7", [row("b8", 90, 95)]), base=base, start=41, evidence=evidence)
    assert kinds(evidence) == ["batch-chain", "positions-moved-back"]


def test_what_is_left_below_the_checkpoint_is_checked_from_the_second_batch_on() -> None:
    """What the first one moved can't be known; the checkpoint has to end where the log does at that place."""
    events = [*publish("b6", "b5", [row("b6", 50, 80)]), *publish("b7", "b6", [row("b7", 80, 100)])]
    base, evidence = checkpoint(36, "b7", 100), Evidence()
    seen = of(*events, base, *publish("b8", "b7", [row("b8", 100, 120)]), base=base, start=30, evidence=evidence)
    assert kinds(evidence) == []
    assert list(seen.batches) == ["b7", "b8"]
    assert seen.trimmed_batches == 6
    for wrong in (checkpoint(36, "b6", 100), checkpoint(36, "b7", 99)):
        evidence = Evidence()
        of(*events, wrong, base=wrong, start=30, evidence=evidence)
        assert kinds(evidence) == ["batch-chain"]
        names(evidence.violations[0].message, 36)


def test_positions_of_a_topic_taken_out_before_the_trim_are_known_from_the_checkpoint() -> None:
    gone = TopicPartition("gone", 0)
    base = replace(checkpoint(40, "b7", 100), former_positions={"gone": (7,)})
    seen = of(base, base=base, start=41, evidence=Evidence())
    assert seen.positions == {AT: 100, gone: 7}


def checkpoint(up_to: int, last: str, position: int) -> TableCheckpoint:
    return TableCheckpoint(
        pipeline_id="p",
        up_to_offset=up_to,
        pipeline="p",
        deployment="d",
        fingerprint="",
        cluster_id="",
        control_topic_id="",
        paused_by=None,
        last_complete_batch_id=last,
        positions={"flights": (-1, -1, -1, position)},
        topic_ids={},
        through_ms={},
        reported={},
        open_findings=(),
        begins={"flights": (-1, -1, -1, 5)},
        batches=7,
    )


def test_a_topic_with_another_id_begins_anew_and_its_former_end_is_kept() -> None:
    evidence = Evidence()
    restarted = replace(complete("b2", "b1", {AT: 0}), topic_ids={"flights": "new"})
    seen = history([*bootstrapped(("b1", [row("b1", 5, 10)]), begin=5), restarted], evidence)
    place = former_place(AT, "id")
    assert kinds(evidence) == []
    assert (seen.positions, seen.former, seen.begins) == ({AT: 0}, {place: 10}, {place: 5})
    assert seen.batches["b2"].new == {AT: 0}

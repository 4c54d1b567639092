"""Mutants of slots, and of what a mirror's task and its driver do."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ASLEEP = "tests/simulation/slots/test_directed.py"
_NO_PROMISE = f"{_ASLEEP}::test_with_every_rule_no_promise_is_broken"
_SLOT = "tests/integration/test_slot.py"
_SLOTS = "tests/unit/control/slots/test_state.py"
_STATE = "tests/unit/mirror/test_state.py"
_SEGMENTS = "tests/unit/mirror/test_segments.py"
_DIGEST = "tests/unit/mirror/test_digest.py"
_PLAN = "tests/unit/mirror/test_plan.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "lead-fences-its-own-slots-only",
        "sink_core/control/slots/leading.py",
        "        if rules.slots_are_fenced and rules.generation_is_recorded_first:\n"
        "            self.fence(self._log.state.most_slots)",
        "        if rules.slots_are_fenced and rules.generation_is_recorded_first:\n            self.fence(what.slots)",
        (_NO_PROMISE,),
        "A slot of a generation that had more of them would commit what the next one has copied: records twice.",
    ),
    Mutant(
        "most-slots-of-the-last-generation",
        "sink_core/control/slots/state.py",
        "self.most_slots = max(self.most_slots, event.slots)",
        "self.most_slots = event.slots",
        (f"{_SLOTS}::test_ids_of_as_many_slots_as_any_generation_had_are_to_be_fenced", _NO_PROMISE),
        "Slots of a generation that had more of them would not be fenced: records twice.",
    ),
    Mutant(
        "late-commit-leads",
        "sink_core/control/slots/state.py",
        "        if self.generation is not None:\n            return self.generation.event.batch_id\n",
        "        if self.complete is not None:\n            return self.complete.event.batch_id\n",
        (f"{_SLOTS}::test_a_late_commit_does_not_lead_again",),
        "A slot that commits between a generation's record and its fence would end that generation, every time.",
    ),
    Mutant(
        "late-commit-is-the-generations-own",
        "sink_core/control/slots/state.py",
        "        if event.batch_id == self.last_batch_id:\n            self.commits",
        "        if True:\n            self.commits",
        (f"{_STATE}::test_a_late_slot_of_an_earlier_generation_copied_and_the_generation_did_not",),
        "A run would report records that another one copied.",
    ),
    Mutant(
        "trimmed-log-kept-lately",
        "sink_core/control/slots/state.py",
        "        if self.log_start == 0:\n",
        "        if True:\n",
        (
            f"{_SLOTS}::test_a_generation_that_a_trim_left_is_not_taken_for_the_time_when_all_positions_were_committed",
            f"{_STATE}::test_a_trimmed_log_says_what_the_whole_one_says",
        ),
        "Positions of idle partitions would expire while trims go on, and the mirror stop on positions-missing.",
    ),
    Mutant(
        "checkpoint-forgets-slots",
        "sink_core/control/slots/state.py",
        "        self.most_slots = max(self.most_slots, event.most_slots)\n",
        "",
        (
            f"{_SLOTS}::test_a_checkpoint_stands_for_what_was_trimmed",
            f"{_STATE}::test_a_trimmed_log_says_what_the_whole_one_says",
        ),
        "After a trim, slots of the generations that it deleted would not be fenced: records twice.",
    ),
    Mutant(
        "fenced-slot-crashes",
        "sink_core/control/slots/slot.py",
        "        except SystemError as raised:\n",
        "        except ZeroDivisionError as raised:\n",
        (f"{_ASLEEP}::test_slots_that_wake_up_late_say_that_they_were_overtaken",),
        "A task that another run overtook would end its own run with a crash, where it has only to stop.",
    ),
    Mutant(
        "refused-is-foreign",
        "sink_core/mirror/part.py",
        "if self._records and not self._refused and self._last - self._first + 1 > self._records:",
        "if self._records and self._last - self._first + 1 != self._records:",
        (f"{_SLOT}::test_a_record_that_the_target_refuses_is_named_so_and_nothing_of_it_is_there",),
        "A record that is too large for the target would stop the mirror on a finding about records of others.",
    ),
    Mutant(
        "copy-from-the-plan",
        "sink_core/mirror/copy.py",
        "left.append(OffsetRange(*part.at, position.offset, part.end))",
        "left.append(part)",
        ("tests/simulation/slots/test_copies.py",),
        "A task that is tried again would copy once more what its first attempt committed: records twice.",
    ),
    Mutant(
        "ends-not-looked-at-again",
        "sink_core/mirror/batches.py",
        "if any(position.offset > real_ends[at] for at, position in found.items()):",
        "if False:",
        ("tests/simulation/slots/test_copies.py",),
        "A run that was held up while another copied would stop on positions-beyond-end, and wait for an answer.",
    ),
    Mutant(
        "segments-past-a-gap",
        "sink_core/mirror/segments.py",
        "    return first + count if run + 1 < len(starts) else None",
        "    return first + inside if run + 1 < len(starts) else None",
        (f"{_SEGMENTS}::test_every_offset_is_translated_to_where_its_record_or_the_next_one_landed",),
        "A group whose position lies in a gap would go on behind records that it has not read.",
    ),
    Mutant(
        "thinned-runs-not-marked",
        "sink_core/mirror/segments.py",
        "counts = (-np.add",
        "counts = (np.add",
        (f"{_SEGMENTS}::test_a_thinned_translation_is_never_past_and_at_most_one_merged_run_before",),
        "A group of a topic of many small transactions would go on behind records that it has not read.",
    ),
    Mutant(
        "digest-without-lengths",
        "sink_core/mirror/digest.py",
        "self._shape = crc32(shape.T.tobytes(), self._shape)",
        "self._shape = crc32(shape[2].tobytes(), self._shape)",
        (f"{_DIGEST}::test_what_is_moved_from_one_record_to_its_neighbour_is_another_digest",),
        "A proof would not see bytes that are another record's, nor null in place of empty.",
    ),
    Mutant(
        "digest-headers-by-batch",
        "sink_core/mirror/digest.py",
        "enumerate(headers, self._records)",
        "enumerate(headers)",
        (f"{_DIGEST}::test_it_is_the_same_however_records_are_divided_into_batches",),
        "A proof would find records changed that were only read in other batches.",
    ),
    Mutant(
        "slot-of-the-first",
        "sink_core/control/shares.py",
        "least = loads.index(min(loads))",
        "least = 0",
        (f"{_PLAN}::test_the_largest_range_is_alone_and_small_ones_share",),
        "One slot would copy everything, whatever the number of tasks.",
    ),
)

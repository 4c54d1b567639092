"""Mutants of the control side: planning, decision, publisher, log, state, group, checks, tasks and their counts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DECISION = "tests/unit/control/test_decision.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "decision-log-not-asked",
        "sink_core/control/decision.py",
        "plan.batch_id in state.batches or any(",
        "any(",
        (f"{_DECISION}::test_our_batch_in_the_log_counts_even_if_others_have_published_since",),
        "A run whose batch landed before others published would call it stale, and report its records as not stored.",
    ),
)

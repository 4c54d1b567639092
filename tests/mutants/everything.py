"""All mutants there are. A module with a `MUTANTS` of its own is joined here."""

from __future__ import annotations

from tests.mutants import (
    commit,
    control,
    findings,
    hudi,
    jobs,
    kernels,
    maintenance,
    proof,
    slots,
    sources,
    state,
    tasks,
)
from tests.mutants.mutant import Mutant

MODULES = (control, state, tasks, slots, sources, commit, findings, hudi, jobs, kernels, maintenance, proof)

MUTANTS: tuple[Mutant, ...] = tuple(mutant for module in MODULES for mutant in module.MUTANTS)

"""All mutants there are. A module with a `MUTANTS` of its own is joined here."""

from __future__ import annotations

from tests.mutants import control
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (*control.MUTANTS,)

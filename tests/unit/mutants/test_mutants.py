"""The list of mutants: each fits the code as it is, is one change that compiles, and names tests that exist."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.documents import ROOT
from tests.mutants.copies import changed, misplaced
from tests.mutants.everything import MUTANTS
from tests.mutants.mutant import Mutant

LEAST = 40


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len(MUTANTS) >= LEAST
    names = Counter(mutant.name for mutant in MUTANTS)
    assert [name for name, times in names.items() if times > 1] == []


def test_each_fits_the_code_as_it_is() -> None:
    assert misplaced(ROOT, MUTANTS) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_a_change_that_compiles_of_code_that_runs(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    there, then = ast.parse(text), ast.parse(changed(mutant, text))
    assert ast.dump(there) != ast.dump(then), "only the layout is changed"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_says_what_would_be_lost_and_who_notices(mutant: Mutant) -> None:
    assert mutant.lost[0].isupper()
    assert mutant.lost.endswith(".")
    assert len(mutant.lost.split()) >= 5
    assert mutant.caught_by or mutant.survives
    for test in mutant.caught_by:
        path, _, name = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions or not name

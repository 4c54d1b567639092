"""What a new process imports, and what it does not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
import sys
from calve.sink_core import imports

with imports.for_good():
    import calve.sink_core.sink.run
    looked_for = not gc.isenabled()
import pyarrow as pa

numbers = pa.array([1, 2])
pandas_early = "pandas" in sys.modules
frame = pa.table({"a": numbers}).to_pandas()
again = pa.array(frame["a"]) == numbers
frozen = gc.get_freeze_count()
with imports.for_good():
    still = gc.isenabled()
print(looked_for, pandas_early, again, frozen > 100_000, gc.get_freeze_count() == frozen, still)
"""


AS_IT_IS = """
import sys
from calve.sink_core import imports

with imports.for_good(pandas=True):
    import calve.sink_core.sink.run
import pyarrow as pa

pa.array([1])
print("pandas" in sys.modules)
"""


def printed(program: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_what_is_imported_for_good_is_no_garbage_and_pandas_waits_until_it_is_asked_for() -> None:
    assert printed(PROGRAM) == ["True", "False", "True", "True", "True", "True"]


def test_where_code_of_users_runs_pyarrow_knows_pandas_from_its_first_array_on() -> None:
    assert printed(AS_IT_IS) == ["True"]

"""What a new process imports once and keeps until its end, for less than Python takes by itself.

A run of 1,000 records takes a CPU-second less with both of these measures:

- Python looks for garbage again and again while modules are made, and once more at the end of the process. What is
  frozen is not looked at.
- With its first array pyarrow imports pandas, to know its objects, which takes 0.4 CPU-seconds.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType


@contextmanager
def for_good(*, pandas: bool = False) -> Generator[None]:
    """Import in this `with` what the process needs; in one that has pyiceberg already it does nothing.

    Unless with `pandas`, pyarrow takes no object of pandas for one until it was asked to make some: where code of users
    runs it may be given them.
    """
    if "pyiceberg" in sys.modules:
        yield
        return
    gc.disable()
    try:
        if not pandas:
            _look_for_pandas_later()
        yield
    finally:
        gc.freeze()
        gc.enable()


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("later", name=fullname)


def _look_for_pandas_later() -> None:
    """Have pyarrow find no pandas the one time that it looks unasked; `to_pandas` and the like look again."""
    without = _WithoutPandas()
    sys.meta_path.insert(0, without)
    try:
        import pyarrow as pa

        pa.array(())
    finally:
        sys.meta_path.remove(without)

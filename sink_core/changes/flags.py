"""What holds for which rows of Arrow's arrays, as NumPy has it. Pure."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]


def true(flags: pa.Array) -> Bools:
    """Where a boolean is there and true."""
    return pc.fill_null(flags, False).to_numpy(zero_copy_only=False)


def nulls(column: pa.Array) -> Bools:
    """Where there is no value."""
    return true(pc.is_null(column))


def is_in(column: pa.Array, values: Sequence[str]) -> Bools:
    """Where the text is one of these."""
    return true(pc.is_in(column, value_set=pa.array(values, column.type)))

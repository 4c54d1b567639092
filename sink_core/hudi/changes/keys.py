"""Keys that Hudi can't tell from others: it makes one text of a key's columns, `name:value,name:value`."""

# pyarrow makes its compute functions at import, unseen by type checkers.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STAND_INS = ("__empty__", "__null__")
"""What stands in Hudi's record keys for a text that is empty, and for none."""


def indistinct_keys(columns: Mapping[str, pa.Array]) -> dict[int, str]:
    """What is wrong with keys, by their place. `columns` are all of the key's, by name."""
    wrong: dict[int, str] = {}
    for name, column in columns.items():
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if not (is_text or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            continue
        text = "empty, and Hudi tells no row by that"
        wrong |= dict.fromkeys(_where(pc.equal(pc.binary_length(column), 0)), f"{name}: {text}")
        if not is_text:
            continue
        for stand_in in STAND_INS:
            text = f"{stand_in}, which in Hudi's record keys stands for something else"
            wrong |= dict.fromkeys(_where(pc.equal(column, stand_in)), f"{name}: {text}")
        for other in columns if len(columns) > 1 else ():
            text = f"has ,{other}: in it, by which Hudi joins the columns of a key"
            wrong |= dict.fromkeys(_where(pc.match_substring(column, f",{other}:")), f"{name}: {text}")
    return wrong


def _where(flags: pa.Array) -> list[int]:
    return np.flatnonzero(flags.fill_null(False).to_numpy(zero_copy_only=False)).tolist()

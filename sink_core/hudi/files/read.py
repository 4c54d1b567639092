"""Reading Hudi tables by Hudi's reader for Python (hudi-rs), where it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

from calve.sink_core.hudi.files.place import Place

if TYPE_CHECKING:
    from hudi import HudiFileSlice

NO_READER = "the package `hudi` is not installed (pip install 'calve[hudi]')"


def has_reader() -> bool:
    """Whether it is installed."""
    return find_spec("hudi") is not None


def read_rows(place: Place, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The columns of the table's last version, in batches of so many rows at most. Raises ImportError without the
    reader, and whatever it raises: it has no errors of its own.
    """
    try:
        from hudi import HudiReadOptions, HudiTableBuilder
    except ImportError:
        raise ImportError(NO_READER) from None
    options = HudiReadOptions(projection=list(columns)).with_batch_size(batch_rows)
    return iter(HudiTableBuilder.from_base_uri(str(place.folder)).build().read_stream(options))


def file_slices(place: Place) -> Sequence[HudiFileSlice]:
    """The files of the table's last version. Raises as `read_rows`."""
    try:
        from hudi import HudiTableBuilder
    except ImportError:
        raise ImportError(NO_READER) from None
    return HudiTableBuilder.from_base_uri(str(place.folder)).build().get_file_slices()

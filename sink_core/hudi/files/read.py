"""Reading Hudi tables by Hudi's reader for Python (hudi-rs), where it is installed."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyarrow as pa

from calve.sink_core.hudi.files.place import Place

if TYPE_CHECKING:
    from hudi import HudiFileSlice

NO_READER = "the package `hudi` is not installed (pip install 'calve[hudi]')"


class NotReadable(Exception):
    """Hudi's reader is not there, or can't read what the table is made of."""


def has_reader() -> bool:
    """Whether it is installed."""
    return find_spec("hudi") is not None


def read_rows(place: Place, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The columns of the table's last version, in batches of so many rows at most. Raises NotReadable, and whatever the
    reader raises: it has no errors of its own.
    """
    with _reading():
        from hudi import HudiReadOptions, HudiTableBuilder

        options = HudiReadOptions(projection=list(columns)).with_batch_size(batch_rows)
        yield from HudiTableBuilder.from_base_uri(str(place.folder)).build().read_stream(options)


def file_slices(place: Place) -> Sequence[HudiFileSlice]:
    """The files of the table's last version. Raises as `read_rows`."""
    with _reading():
        from hudi import HudiTableBuilder

        return HudiTableBuilder.from_base_uri(str(place.folder)).build().get_file_slices()


@contextmanager
def _reading() -> Generator[None]:
    try:
        yield
    except ImportError:
        raise NotReadable(NO_READER) from None
    except BaseException as error:
        # What Rust gives up on is no Exception, such as types that it has no code for (timestamps without a zone).
        if type(error).__name__ == "PanicException":
            raise NotReadable(f"the package `hudi` can't read it: {error}") from None
        raise

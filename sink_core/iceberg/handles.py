"""Values of pyiceberg that other folders hand from one function of this folder to another.

Outside this folder nobody looks into them (held by tests/unit/repository/test_handles.py): what is to be known of a
table is asked for by name, of a function here.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

__all__ = ["Catalog", "FileScanTask", "Table", "TableMetadata"]

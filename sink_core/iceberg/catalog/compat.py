"""Names of pyiceberg's REST catalog that it keeps to itself, apart from the others: its client is imported for it only.

`tests/unit/iceberg/catalog/test_compat.py` says when a release drops one.
"""

from __future__ import annotations

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from requests import Session


class OpenRestCatalog(RestCatalog):
    """pyiceberg's REST catalog, whose session may be changed before its first request."""

    def prepared(self, session: Session) -> Session:
        return session

    def _create_session(self) -> Session:
        return self.prepared(super()._create_session())

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Nothing: the server does so."""

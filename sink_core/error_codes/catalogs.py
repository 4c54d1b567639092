"""Codes of catalogs and their storage."""

from calve.sink_core.error_codes.code import ErrorCode

CATALOG_AWAY = ErrorCode(
    "CLV-3101",
    "Catalog or storage can't be reached",
    (
        "The catalog does not answer, or files of a table can't be read or written. What was published is committed "
        "by the next run."
    ),
    "Check `uri` (its user and password too) and `warehouse`, and that the service runs.",
)
STORAGE_FULL = ErrorCode(
    "CLV-3102",
    "Storage has no space left",
    (
        "A disk is full, a file too large or a quota used up: the message names `ENOSPC` (errno 28), `EFBIG` or a "
        "quota. What was published is committed by the next run."
    ),
    "Free space, or raise the quota.",
)
DATABASE_LOCKED = ErrorCode(
    "CLV-3103",
    "The SQLite database stays locked",
    "Another process holds it.",
    "Run again; end what holds the lock. For several writers keep the catalog in a server's.",
)
NO_CATALOG = ErrorCode(
    "CLV-3104",
    "The answer is no catalog's",
    "Something else than the catalog answers at `uri`: a log-in page, a proxy, another service.",
    "Have `uri` name the catalog itself.",
)
CATALOG_SETTING = ErrorCode(
    "CLV-3105",
    "A setting of the catalog is wrong",
    (
        "Its type, address, `warehouse` or `prefix` can't be used: there is no place to put tables, or the folder of"
        " the SQLite catalog can't be created."
    ),
    "Correct `uri`, `warehouse` or what the message names, under `catalog` in connections.yaml.",
)
CATALOG_REFUSES = ErrorCode(
    "CLV-3106",
    "The catalog or its storage refuses the log-in",
    "A credential, token or access key is wrong, or grants too little.",
    "Check `credential`, `token` and the access keys, and what they grant.",
)
NOT_INSTALLED = ErrorCode(
    "CLV-3107",
    "A library is missing",
    "The catalog or its storage needs one that is not installed.",
    "Install what the message names beside Calve, on Spark's executors too.",
)
METADATA_GONE = ErrorCode(
    "CLV-3108",
    "A file of the table's metadata is gone",
    "The catalog points to a file that is not there.",
    "Restore the file, or have the catalog point to metadata that exists.",
)
METADATA_DAMAGED = ErrorCode(
    "CLV-3112",
    "A table's metadata can't be read",
    "The file that the catalog points to is cut off or damaged, or of a format version that this Calve does not know.",
    "Restore the file, or have the catalog point to an earlier one; for a newer format version use another table.",
)
NO_TAGS = ErrorCode(
    "CLV-3109",
    "The catalog keeps no tags",
    "By its tag a table says what it holds, and this catalog leaves tags out.",
    "Keep the tables in another catalog.",
)
NO_LISTING = ErrorCode(
    "CLV-3110",
    "Files can't be listed",
    "Orphan removal with a FileIO that has no listing.",
    "Leave `py-io-impl` out.",
)
SPARK_CATALOG = ErrorCode(
    "CLV-3111",
    "What Spark needs of the catalog can't be derived",
    "For this type of catalog, or of the JDBC address of its database.",
    "Set `catalog-impl` or `uri` with their keys under the catalog's `spark`.",
)

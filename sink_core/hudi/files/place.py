"""Where a Hudi table and what is to come into it are, and how their files are put in place.

    <warehouse>/<namespace>/<table>/                 the table
    <warehouse>/<namespace>/.calve/<table>/lock      held by whoever commits to it
    <warehouse>/<namespace>/.calve/<table>/new-…     a table that is being created
    <warehouse>/<namespace>/.calve/<table>/staged/   files of batches that no commit has named yet, by batch

Staged files lie beside the table and not in it: a published batch must not depend on what other writers take for
leftovers. Both are on one file system, so that a file comes into the table by a second name.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from calve.sink_core.codes import Code
from calve.sink_core.config.effective import HudiSettings
from calve.sink_core.config.references import resolve
from calve.sink_core.errors import ConfigError

HOODIE = ".hoodie"
PROPERTIES = f"{HOODIE}/hoodie.properties"
TIMELINE = f"{HOODIE}/timeline"
PARTITION_FIELDS = "hoodie.table.partition.fields"
"""The property that names the columns of a table's partitions."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table's `folder`, and the folder beside it that is Calve's; the table's `name`, if it is known."""

    folder: Path
    beside: Path
    name: str = ""

    @property
    def lock(self) -> Path:
        return self.beside / "lock"

    @property
    def staged(self) -> Path:
        return self.beside / "staged"

    @property
    def properties(self) -> Path:
        return self.folder / PROPERTIES

    @property
    def timeline(self) -> Path:
        return self.folder / TIMELINE

    def new(self) -> Path:
        """A folder for a table that is being created."""
        return self.beside / f"new-{uuid.uuid4()}"


def warehouse_of(settings: HudiSettings) -> Path:
    """The folder of all tables. Raises ConfigError for one that is not of a local file system."""
    named = str(resolve({"warehouse": settings.warehouse})["warehouse"])
    scheme, separator, path = named.partition("://")
    if separator and scheme != "file":
        raise ConfigError(
            f"hudi.warehouse: {named} is in {scheme}, where Calve has no lock that its committers could share",
            hint="name a folder of this machine, or of a file system that all machines have mounted",
            code=Code.NO_LOCAL_WAREHOUSE,
        )
    return Path(path if separator else named.removeprefix("file:")).expanduser().absolute()


def place_of(warehouse: Path, table: str) -> Place:
    *namespace, name = table.split(".")
    within = warehouse.joinpath(*namespace)
    return Place(within / name, within / ".calve" / name, table)


def put(content: bytes, path: Path) -> bool:
    """Write a file whole, unless there is one; whether it was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{uuid.uuid4()}")
    written.write_bytes(content)
    try:
        return link(written, path)
    finally:
        written.unlink()


def link(path: Path, name: Path) -> bool:
    """Give a file a second name, unless something has it; whether it was given."""
    name.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.link(path, name)
        return True
    return False

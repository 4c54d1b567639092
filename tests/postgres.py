"""A real PostgreSQL of a test's own, with logical decoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.postgres_to_iceberg.database import DATABASE, USER, WAIT_S, dsn, program, running
from tests.support import steady_port


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `dsn` is what psycopg2 and psql take."""

    port: int

    @property
    def dsn(self) -> str:
        return dsn(self.port)

    @property
    def url(self) -> str:
        """What SQLAlchemy takes."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def psql(self, file: Path) -> None:
        """Run a file of SQL."""
        command = [program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), self.dsn]
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)

    @contextmanager
    def load(self, file: Path, *, per_second: int, clients: int = 4) -> Generator[None]:
        """pgbench with a script, in the background. Transactions that meet in a deadlock are tried again."""
        command = [program("pgbench"), "-n", "-f", str(file), "-c", str(clients), "-R", str(per_second), "-T", "3600"]
        process = subprocess.Popen(
            [*command, "--max-tries=20", self.dsn], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            yield
            assert process.poll() is None, process.communicate()[1]
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)


@contextmanager
def postgres(password: str = "", **settings: str) -> Generator[Postgres]:
    """Started in a folder of its own, gone at the end with all of it. With a password it lets nobody in without."""
    # For root another user runs the server, who must get there.
    place = "/tmp" if os.geteuid() == 0 else None
    directory, port = Path(tempfile.mkdtemp(prefix="calve-postgres-", dir=place)), steady_port()
    try:
        # What a crash of the machine would cost is nobody's here. Each test has a slot of its own.
        with running(directory, port, password, fsync="off", autovacuum="off", max_replication_slots="100", **settings):
            yield Postgres(port)
    finally:
        shutil.rmtree(directory)

"""A real PostgreSQL of a test's own, with logical decoding."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import steady_port

USER, DATABASE = "calve", "bank"
_DEBIAN_S = "/usr/lib/postgresql/*/bin"
_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `dsn` is what psycopg2 and psql take."""

    port: int

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} dbname={DATABASE}"

    @property
    def url(self) -> str:
        """What SQLAlchemy takes."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def psql(self, file: Path) -> None:
        """Run a file of SQL."""
        command = [program("psql"), "-q", "-v", "ON_ERROR_STOP=1", "-f", str(file), self.dsn]
        subprocess.run(command, check=True, capture_output=True, timeout=_WAIT_S)

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
            process.communicate(timeout=_WAIT_S)


@contextmanager
def postgres(password: str = "") -> Generator[Postgres]:
    """Started in a folder of its own, gone at the end with all of it. With a password it lets nobody in without."""
    directory, port = Path(tempfile.mkdtemp(prefix="calve-postgres-")), steady_port()
    if _as_who():
        shutil.chown(directory, *_as_who().values())
    try:
        data, secret = directory / "data", directory / "password"
        secret.write_text(password)
        method = ["-A", "scram-sha-256", "--pwfile", str(secret)] if password else ["-A", "trust"]
        _run([program("initdb"), "-D", str(data), "-U", USER, *method, "-E", "UTF8", "--locale=C", "--no-sync"])
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(directory),
            "wal_level": "logical",
            # What a crash of the machine would cost is nobody's here.
            "fsync": "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        control = [program("pg_ctl"), "-D", str(data), "-w", "-t", str(_WAIT_S)]
        _run([*control, "-l", str(directory / "log"), "-o", options, "start"])
        try:
            _run([program("createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, DATABASE], PGPASSWORD=password)
            yield Postgres(port)
        finally:
            _run([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(directory)


def program(name: str) -> str:
    """Where Debian keeps it, or on the path."""
    found = [str(path) for folder in Path("/").glob(_DEBIAN_S[1:]) if (path := folder / name).exists()]
    there = (sorted(found) or [shutil.which(name)])[-1]
    assert there, f"{name} is missing: install PostgreSQL (Debian/Ubuntu: apt-get install postgresql)"
    return there


def _run(command: Sequence[str], **environment: str) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=2 * _WAIT_S,
        cwd="/",
        env={**os.environ, **environment},
        **_as_who(),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _as_who() -> dict[str, Any]:
    """The server refuses to run as root."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}

"""A PostgreSQL of the demo's own, by the programs that are installed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USER, DATABASE = "calve", "bank"
WAIT_S = 60

_DEBIAN_S = "/usr/lib/postgresql/*/bin"
_SETTINGS = {"listen_addresses": "127.0.0.1", "wal_level": "logical"}


@contextmanager
def running(directory: Path, port: int, password: str = "", **settings: str) -> Generator[bool]:
    """A server in a folder, stopped at the end; whether it was made now, with an empty database. With a password it
    lets nobody in without. Raises PermissionError for a folder that the server's user can't get to.
    """
    data, new = directory / "data", not (directory / "data/PG_VERSION").exists()
    if new:
        directory.mkdir(parents=True, exist_ok=True)
        if who := _as_who():
            _require_open(directory.absolute().parents, who["user"])
            shutil.chown(directory, *who.values())
        secret = directory / "password"
        secret.write_text(password)
        method = ["-A", "scram-sha-256", "--pwfile", str(secret)] if password else ["-A", "trust"]
        run([program("initdb"), "-D", str(data), "-U", USER, *method, "-E", "UTF8", "--locale=C", "--no-sync"])
    stated = {**_SETTINGS, "port": str(port), "unix_socket_directories": str(directory), **settings}
    options = " ".join(f"-c {name}={value}" for name, value in stated.items())
    control = [program("pg_ctl"), "-D", str(data), "-w", "-t", str(WAIT_S)]
    run([*control, "-l", str(directory / "log"), "-o", options, "start"])
    try:
        if new:
            run([program("createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, DATABASE], PGPASSWORD=password)
        yield new
    finally:
        run([*control, "-m", "immediate", "stop"])


def dsn(port: int) -> str:
    """What psql, pgbench and psycopg2 take."""
    return f"host=127.0.0.1 port={port} user={USER} dbname={DATABASE}"


def url(port: int) -> str:
    """What SQLAlchemy and Calve take."""
    return f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"


def program(name: str) -> str:
    """Where Debian keeps it, or on the path. Raises FileNotFoundError if PostgreSQL is not installed."""
    found = [str(path) for folder in Path("/").glob(_DEBIAN_S[1:]) if (path := folder / name).exists()]
    there = (sorted(found) or [shutil.which(name)])[-1]
    if not there:
        raise FileNotFoundError(f"{name} is missing: install PostgreSQL (Debian/Ubuntu: apt-get install postgresql)")
    return there


def run(command: Sequence[str], **environment: str) -> None:
    """Run a program of the server to its end. Raises RuntimeError with what it said."""
    env = {**os.environ, **environment}
    done = subprocess.run(  # noqa: S603 - the server's own
        command, capture_output=True, text=True, timeout=2 * WAIT_S, cwd="/", env=env, check=False, **_as_who()
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout}\n{done.stderr}")


def _require_open(folders: Iterable[Path], user: str) -> None:
    if closed := next((folder for folder in folders if not folder.stat().st_mode & stat.S_IXOTH), None):
        where = f"{closed} may not be entered by user {user}, who runs the server"
        raise PermissionError(f"{where}: set CALVE_DEMO_DIR to a folder elsewhere, or let others enter this one")


def _as_who() -> dict[str, Any]:
    """The server refuses to run as root."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}

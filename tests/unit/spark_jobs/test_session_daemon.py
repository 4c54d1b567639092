"""Spark's Python daemon for Connect sessions, as Spark starts it: it stays while it has workers, then ends itself."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = "from spark_jobs import session_daemon; session_daemon.UNUSED_S = 1.0; session_daemon.main()"


def test_a_daemon_ends_once_it_has_had_no_worker_for_a_while() -> None:
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "s", "SPARK_REUSE_WORKER": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, **pipes) as daemon:
        assert daemon.stdout
        [port] = struct.unpack("!i", daemon.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as asked:
            [worker] = struct.unpack("!i", asked.recv(4))
            # It looks once a second.
            time.sleep(4)
            assert daemon.poll() is None
        daemon.wait(60)
    assert not Path(f"/proc/{worker}").exists()

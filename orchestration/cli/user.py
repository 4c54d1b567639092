"""Who gives a command, as its event says."""

from __future__ import annotations

import getpass
import os
import socket


def user() -> str:
    """user@host; the user's number where it has no name, as in some containers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"

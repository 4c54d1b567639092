"""A relay between a client and a server, which falls silent: it accepts, acknowledges, and answers nothing more."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from calve.sink_core.detached import HOST

_AT_ONCE = 65_536


class Relay:
    """To the server at port `upstream`. `port` is its own."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._silent, self._over = Event(), Event()
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def fall_silent(self) -> None:
        self._silent.set()

    def recover(self) -> None:
        """For connections that are opened from now on."""
        self._silent.clear()

    def close(self) -> None:
        self._over.set()
        for each in [self._listener, *self._open]:
            # Wakes up whoever reads from it; it may be closed.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((HOST, self.upstream))
            self._open += [client, server]
            for one, other in [(client, server), (server, client)]:
                Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(_AT_ONCE):
                if self._silent.is_set():
                    self._over.wait()
                    return
                other.sendall(data)
            if not self._silent.is_set():
                other.shutdown(socket.SHUT_WR)


@contextmanager
def relay(upstream: int) -> Generator[Relay]:
    between = Relay(upstream)
    try:
        yield between
    finally:
        between.close()

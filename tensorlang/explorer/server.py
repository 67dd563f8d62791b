"""Serves an explorer on this machine alone, until an interrupt: the only user of waitress."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

import waitress

from tensorlang.diagnostics import error
from tensorlang.explorer.application import MOST_BYTES, Application
from tensorlang.explorer.explorer import Explorer

HOST = "127.0.0.1"
_LIMITS = {
    "threads": 4,
    "connection_limit": 32,
    "channel_timeout": 90,
    "max_request_body_size": MOST_BYTES,
    "max_request_header_size": 1 << 14,
    "ident": None,
}


def serve(explorer: Explorer, port: int, ready: Callable[[str], None]) -> None:
    """Serve a page on `port`, 0 for any that is free, and tell `ready` its address; return after an interrupt.

    Raises CompileError C0242 where nothing can be served there."""
    application = Application(explorer, secrets.token_urlsafe(24))
    try:
        listening = socket.create_server((HOST, port))
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise error("C0242", f"nothing can be served on port {port}: {why}", help="leave out `--port` for one that is free") from None
    server = waitress.create_server(application, sockets=[listening], **_LIMITS)
    own = listening.getsockname()[1]
    application.hosts = frozenset((f"{HOST}:{own}", f"localhost:{own}"))
    try:
        ready(f"http://{HOST}:{own}/?token={application.token}")
        server.run()
    finally:
        server.close()
        explorer.end()

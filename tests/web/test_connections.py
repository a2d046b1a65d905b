"""Connections on which nothing is asked keep nobody out."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from ifonly.web import connections


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(connections, "MOST_PER_ADDRESS", 20)
    monkeypatch.setattr(connections, "SECONDS_TO_ASK", 0.5)
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    config = uvicorn.Config(
        app, http=connections.PatientProtocol, lifespan="off", ws="none", log_config=None, limit_concurrency=40
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(connection: socket.socket) -> bytes:
    """What comes back; nothing where the connection was closed."""
    connection.settimeout(5)
    found = b""
    try:
        while not found.endswith(b"ok") and (part := connection.recv(1000)):
            found += part
    except ConnectionError:
        return b""
    return found


def test_idle_connections_keep_nobody_out_and_are_closed(address: tuple[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address)) for _ in range(100)]
        asking = stack.enter_context(socket.create_connection(address))
        asking.sendall(REQUEST)
        assert answer(asking).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
        assert {answer(connection) for connection in idle} == {b""}
        assert time.monotonic() - began < 3


def test_half_a_request_is_not_waited_for_and_a_kept_connection_is(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as slow, socket.create_connection(address) as kept:
        for connection in (slow, kept):
            connection.sendall(REQUEST)
            assert answer(connection).startswith(b"HTTP/1.1 200")
        slow.sendall(REQUEST[:10])
        assert answer(slow) == b""
        time.sleep(0.3)
        kept.sendall(REQUEST)
        assert answer(kept).startswith(b"HTTP/1.1 200")

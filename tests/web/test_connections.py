"""Connections on which nothing is asked, or no answer is taken, keep nobody out."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import h11
import pytest
import uvicorn

from ifonly.web import connections

LARGE = 30 * 2**20
"""Bytes, more than systems keep for those who read late."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    body = b"x" * (LARGE - 2) * (scope["path"] == "/large") + b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[uvicorn.Server, tuple[str, int]]]:
    """A server and its address."""
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
        yield server, listener.getsockname()
    finally:
        server.force_exit = server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def address(server: tuple[uvicorn.Server, tuple[str, int]]) -> tuple[str, int]:
    return server[1]


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(connection: socket.socket) -> bytes:
    """What comes back; nothing where the connection was closed."""
    connection.settimeout(60)
    found = bytearray()
    try:
        while not found.endswith(b"ok") and (part := connection.recv(2**16)):
            found += part
    except ConnectionError:
        return b""
    return bytes(found)


def test_idle_connections_keep_nobody_out_and_are_closed(address: tuple[str, int]) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address)) for _ in range(100)]
        asking = stack.enter_context(socket.create_connection(address))
        asking.sendall(REQUEST)
        assert answer(asking).startswith(b"HTTP/1.1 200")
        assert {answer(connection) for connection in idle} == {b""}


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


def test_half_sent_bodies_keep_nobody_out(server: tuple[uvicorn.Server, tuple[str, int]]) -> None:
    one, address = server
    with contextlib.ExitStack() as stack:
        for number in range(connections.MOST_PER_ADDRESS):
            slow = stack.enter_context(socket.create_connection(address))
            slow.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            while sum(held.conn.their_state is h11.SEND_BODY for held in one.server_state.connections) <= number:
                time.sleep(0.01)
        with socket.create_connection(address) as asking:
            asking.sendall(REQUEST)
            assert answer(asking).startswith(b"HTTP/1.1 200")


def test_an_answer_that_nobody_takes_is_not_kept(
    server: tuple[uvicorn.Server, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SECONDS_TO_TAKE", 0.3)
    one, address = server
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address)
        connection.sendall(REQUEST.replace(b"/", b"/large", 1))
        connection.recv(100)
        began = time.monotonic()
        while one.server_state.connections:
            assert time.monotonic() - began < 60
            time.sleep(0.05)
        assert len(answer(connection)) < LARGE


def test_a_large_answer_that_is_taken_arrives(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(2):
            connection.sendall(REQUEST.replace(b"/", b"/large", 1))
            assert len(answer(connection)) > LARGE

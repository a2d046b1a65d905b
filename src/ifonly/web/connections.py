"""Connections that ask nothing: they are closed after a while, and nobody may hold many of them."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_PER_ADDRESS = 128
"""Connections that one address may hold; a browser opens six."""
SECONDS_TO_ASK = 10.0
"""For the head of a request to arrive, once its first byte could."""


class PatientProtocol(H11Protocol):
    """HTTP for those who ask: others would keep everybody out by merely being there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, which must ask something soon; of many from one address the oldest idle one goes."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._patience: asyncio.TimerHandle | None = None
        self._wait()
        held = [other for other in self.connections if isinstance(other, PatientProtocol) and other._is_like(self)]
        if len(held) > MOST_PER_ADDRESS:
            min((other for other in held if other._is_idle), key=lambda other: other._since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what was sent: the whole head of a request, or a part for whose rest is waited a while."""
        super().data_received(data)
        if not self._is_idle:
            self._wait_no_longer()
        elif self._patience is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        self._wait_no_longer()
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        """Whether no request has arrived that is still to be answered."""
        return self.conn.their_state is h11.IDLE

    def _is_like(self, other: PatientProtocol) -> bool:
        """Whether this is an open connection of the same address."""
        return not self.transport.is_closing() and _address(self) == _address(other)

    def _wait(self) -> None:
        self._patience = self.loop.call_later(SECONDS_TO_ASK, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _address(connection: H11Protocol) -> str | None:
    return None if connection.client is None else connection.client[0]

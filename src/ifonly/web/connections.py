"""Connections that ask nothing, or take no answer: they are closed after a while, and nobody may hold many of them."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_PER_ADDRESS = 128
"""Connections that one address may hold; a browser opens six."""
SECONDS_TO_ASK = 10.0
"""For the head of a request to arrive, once its first byte could."""
SECONDS_TO_TAKE, LEAST_TAKEN = 20.0, 16 * 1024
"""In which so many bytes of what is sent must be taken, or all that is left."""


class PatientProtocol(H11Protocol):
    """HTTP for those who ask: others would keep everybody out by merely being there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, which must ask something soon; of many from one address the oldest idle one goes.

        Where none is idle, the oldest one goes whose request has not arrived in full.
        """
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that it is known of every byte that nobody takes
        self._since = self.loop.time()
        self._patience: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._wait()
        held = [other for other in self.connections if isinstance(other, PatientProtocol) and other._is_like(self)]
        if len(held) > MOST_PER_ADDRESS:
            waiting = [other for other in held if other._waits and other is not self]
            min(waiting, key=lambda other: (not other._is_idle, other._since), default=self).transport.abort()

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
        self._stop_watching()

    def pause_writing(self) -> None:
        """Hold back what follows until the client has taken what was sent, which is watched."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Go on, for all was taken."""
        self._stop_watching()
        super().resume_writing()

    @property
    def _is_idle(self) -> bool:
        """Whether no request has arrived that is still to be answered."""
        return self.conn.their_state is h11.IDLE

    @property
    def _waits(self) -> bool:
        """Whether the client has still to send something: a request, or the body of one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _is_like(self, other: PatientProtocol) -> bool:
        """Whether this is an open connection of the same address."""
        return not self.transport.is_closing() and _address(self) == _address(other)

    def _wait(self) -> None:
        self._patience = self.loop.call_later(SECONDS_TO_ASK, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _watch(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(SECONDS_TO_TAKE, self._see_what_was_taken, left)

    def _see_what_was_taken(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - LEAST_TAKEN:
            self.transport.abort()  # to close it would wait for the rest to be taken
        else:
            self._watch()

    def _stop_watching(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


def _address(connection: H11Protocol) -> str | None:
    return None if connection.client is None else connection.client[0]

"""Requests that take the processor's time are worked on a few at once, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Self

AT_ONCE = 2
"""Python runs one thread at a time: forty at once share it out in slices, and what takes longest, a case page, would
wait for all that came after it. Two, for one may be in the model's arithmetic, which runs beside Python."""


class Turns:
    """`with turns:` waits until it is this thread's turn; who came first goes first."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._free = at_once
        self._changing = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> Self:
        with self._changing:
            if self._free:
                self._free -= 1
                return self
            called = threading.Lock()
            called.acquire()
            self._waiting.append(called)
        called.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changing:
            if self._waiting:  # a place is handed over, so that nobody who comes now goes first
                self._waiting.popleft().release()
            else:
                self._free += 1

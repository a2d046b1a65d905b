"""The open nodes of a best-first search, as arrays."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray, IntArray


@dataclass(frozen=True)
class Batch:
    """Nodes at one step: N rows."""

    states: FloatArray  # [N, D]
    rewards: FloatArray  # [N], earned on the way
    changes: IntArray  # [N], changes used
    keys: FloatArray  # [N], upper bound on the outcome through the node
    parents: IntArray  # [N], index of the parent node, -1 for the root
    actions: IntArray  # [N], the action that led here, -1 for the root


class Frontier:
    """Nodes by index, a heap of the open ones, and a record of states already reached.

    Two nodes are the same when step, changes used and state are equal; then only the one that earned more is kept.
    (Keeping the first one found, whatever it earned, would lose the optimum when actions have costs. States that are
    merely close stay apart: how much merging them could cost depends on slopes that may be huge.)
    """

    def __init__(self, state_size: int) -> None:
        self.states: FloatArray = np.empty((1024, state_size))
        self.rewards: FloatArray = np.empty(1024)
        self.keys: FloatArray = np.empty(1024)
        self.columns: IntArray = np.empty((1024, 4), dtype=np.int64)  # step, changes, parent, action
        self.size = 0
        self.heap: list[tuple[float, int]] = []
        self.best: dict[bytes, int] = {}
        self.replaced: set[int] = set()

    def add(self, step: int, batch: Batch) -> None:
        """Open the nodes of `batch`, all at `step`, unless an equal node earned at least as much."""
        identities = self._identities(step, batch)
        kept: list[int] = []
        for row, identity in enumerate(identities):
            known = self.best.get(identity)
            index = self.size + len(kept)
            if known is not None:
                earned = self.rewards[known] if known < self.size else batch.rewards[kept[known - self.size]]
                if batch.rewards[row] <= earned:
                    continue
                self.replaced.add(known)
            self.best[identity] = index
            kept.append(row)
        self._append(step, batch, np.array(kept, dtype=np.int64))

    def top(self) -> float:
        """The largest key of an open node, or -inf when none is open."""
        while self.heap and self.heap[0][1] in self.replaced:
            heapq.heappop(self.heap)
        return -self.heap[0][0] if self.heap else -np.inf

    def pop(self, count: int, above: float) -> IntArray:
        """Close and return up to `count` open nodes with the largest keys above `above`."""
        indices: list[int] = []
        while len(indices) < count and self.top() > above:
            indices.append(heapq.heappop(self.heap)[1])
        return np.array(indices, dtype=np.int64)

    def path(self, index: int) -> list[int]:
        """The actions from the root to a node."""
        actions = []
        while self.columns[index, 2] >= 0:
            actions.append(int(self.columns[index, 3]))
            index = int(self.columns[index, 2])
        return actions[::-1]

    def _identities(self, step: int, batch: Batch) -> list[bytes]:
        states = batch.states + 0.0  # turns -0.0 into 0.0
        labels = np.column_stack([np.full(len(states), float(step)), batch.changes.astype(np.float64), states])
        return [row.tobytes() for row in labels]

    def _append(self, step: int, batch: Batch, kept: IntArray) -> None:
        start, end = self.size, self.size + len(kept)
        while end > len(self.rewards):
            self.states = np.concatenate([self.states, np.empty_like(self.states)])
            self.rewards = np.concatenate([self.rewards, np.empty_like(self.rewards)])
            self.keys = np.concatenate([self.keys, np.empty_like(self.keys)])
            self.columns = np.concatenate([self.columns, np.empty_like(self.columns)])
        self.states[start:end] = batch.states[kept]
        self.rewards[start:end] = batch.rewards[kept]
        self.keys[start:end] = batch.keys[kept]
        self.columns[start:end, 0] = step
        self.columns[start:end, 1] = batch.changes[kept]
        self.columns[start:end, 2] = batch.parents[kept]
        self.columns[start:end, 3] = batch.actions[kept]
        self.size = end
        for index in range(start, end):
            heapq.heappush(self.heap, (-float(self.keys[index]), index))

"""Rules about sequences as a finite automaton: what must be kept in mind of the actions so far, and what may follow.

Every search reads rules in this form, so that a rule of any kind is kept by all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ifonly.data.episode import IntArray
from ifonly.errors import InputError

BROKEN, START = 0, 1
"""The position of a sequence that breaks a rule, which nothing mends, and that of one that has not begun."""
MOST_POSITIONS = 100_000
"""Larger automata take minutes and gigabytes."""


@dataclass(frozen=True, eq=False)
class Automaton:
    """Reads a sequence action by action and keeps in mind, as a position, what the rules must know of those before.

    Action a at step t is read as `symbols[t, a]`, which leads from position m to `after[m, symbols[t, a]]`. Symbol 0
    stands for actions that may not be taken at that step: it leads to position 0 from everywhere.

    >>> never_twice = Automaton(np.array([[1, 2]] * 3), np.array([[0, 0, 0], [0, 2, 3], [0, 0, 3], [0, 2, 0]]))
    >>> never_twice.accepts([0, 1, 0]), never_twice.accepts([0, 1, 1])
    (True, False)
    """

    symbols: IntArray  # [T, A]
    after: IntArray  # [M, S], the first row and the first column zero

    @classmethod
    def of_mask(cls, allowed: npt.NDArray[np.bool_]) -> Automaton:
        """What only says which actions may be taken at each step [T, A], whatever was done before."""
        return cls(allowed.astype(np.int64), np.array([[BROKEN, BROKEN], [BROKEN, START]]))

    @property
    def looks_back(self) -> bool:
        """Whether what may follow depends on actions before."""
        return len(self.after) > 2

    def accepts(self, sequence: Iterable[int]) -> bool:
        """Whether a whole sequence [T] keeps the rules, however many changes it makes."""
        position = START
        for symbols, action in zip(self.symbols, sequence, strict=True):
            position = int(self.after[position, symbols[action]])
        return position != BROKEN

    def __and__(self, other: Automaton) -> Automaton:
        """Both rules at once: pairs of positions, those that can be reached."""
        width, count = other.after.shape[1], len(other.after)
        both = np.where((self.symbols > 0) & (other.symbols > 0), self.symbols * width + other.symbols, 0)
        kinds, symbols = np.unique(np.append(0, both), return_inverse=True)
        one, two = np.divmod(kinds, width)
        numbers = np.zeros(len(self.after) * count, dtype=np.int64)
        reached, rows = np.array([START * count + START]), [np.zeros((1, len(kinds)), dtype=np.int64)]
        known = START
        while len(reached):
            numbers[reached] = np.arange(known, known + len(reached))
            known = _checked_size(known + len(reached))
            mine, others = np.divmod(reached, count)
            first, second = self.after[mine][:, one], other.after[others][:, two]
            rows.append(np.where((first > 0) & (second > 0), first * count + second, 0))
            found = np.unique(rows[-1])
            reached = found[(found > 0) & (numbers[found] == 0)]
        return Automaton(symbols.reshape(-1)[1:].reshape(both.shape), numbers[np.concatenate(rows)])


def at_most_within(changed: npt.NDArray[np.bool_], changes: int, steps: int) -> Automaton:
    """At most so many changes within any so many consecutive steps (2 or more); `changed` [T, A] says what is one.

    >>> changed = np.array([[False, True]] * 4)
    >>> at_most_within(changed, 1, 3).accepts([1, 0, 0, 1]), at_most_within(changed, 1, 3).accepts([1, 0, 1, 0])
    (True, False)
    """
    return Automaton(changed + np.int64(1), _changes_that_count(changes, steps))


@cache
def _changes_that_count(changes: int, steps: int) -> IntArray:
    """Positions are the changes among the steps before that still count, each by how many steps ago it was."""
    _checked_size(sum(math.comb(steps - 1, some) for some in range(changes + 1)))
    table: dict[tuple[int, ...], tuple[tuple[int, ...] | None, ...]] = {}
    pending: list[tuple[int, ...]] = [()]
    while pending:
        ages = pending.pop()
        kept = tuple(age + 1 for age in ages if age + 1 < steps)
        table[ages] = (kept, (*kept, 1) if len(ages) < changes else None)
        pending += [one for one in table[ages] if one is not None and one not in table]
    numbers = {ages: number for number, ages in enumerate(table, start=START)}
    rows = [[BROKEN, *(BROKEN if one is None else numbers[one] for one in row)] for row in table.values()]
    return np.array([[BROKEN] * 3, *rows])


def _checked_size(positions: int) -> int:
    if positions > MOST_POSITIONS:
        raise InputError(
            f"constraints: more than {MOST_POSITIONS:,} patterns of earlier actions would have to be told apart; count "
            "changes within fewer steps, or allow fewer of them."
        )
    return positions


def changes_to_go(rules: Automaton, recorded: IntArray) -> IntArray:
    """The fewest changes [T+1, M] that must still follow at a position before a step; none after the last.

    More than T stands for a dead end: no admissible continuation exists.
    """
    horizon, count = rules.symbols.shape
    dead_end = horizon + 1
    to_go = np.full((horizon + 1, len(rules.after)), dead_end)
    to_go[horizon, START:] = 0
    for t in range(horizon - 1, -1, -1):
        costs = to_go[t + 1][rules.after[:, rules.symbols[t]]] + (np.arange(count) != recorded[t])
        to_go[t] = np.minimum(costs.min(1), dead_end)
    return to_go


def nearest_sequence(rules: Automaton, recorded: IntArray) -> IntArray | None:
    """The admissible sequence [T] with the fewest changes, changed as late as possible; None when there is none."""
    if rules.accepts(recorded):
        return recorded.astype(np.int64)
    horizon, count = rules.symbols.shape
    to_go, position = changes_to_go(rules, recorded), START
    sequence = np.empty(horizon, dtype=np.int64)
    for t in range(horizon):
        following, changed = rules.after[position, rules.symbols[t]], np.arange(count) != recorded[t]
        costs = to_go[t + 1, following] + changed
        if costs.min() > horizon:
            return None
        sequence[t] = np.argmin(2 * costs + changed)  # of equals the recorded action, then the smallest
        position = following[sequence[t]]
    return sequence


def completions(rules: Automaton, recorded: IntArray, max_changes: int) -> npt.NDArray[np.object_]:
    """In how many ways a position before a step can be completed with at most so many changes [T+1, M, K+1]: exactly.

    Whole numbers of any size where they may be large, otherwise of 64 bits.
    """
    horizon, count = rules.symbols.shape
    largest = sum(math.comb(horizon, changes) * (count - 1) ** changes for changes in range(max_changes + 1))
    shape = (horizon + 1, len(rules.after), max_changes + 1)
    ways = np.zeros(shape, dtype=np.int64 if largest < 2**62 else object)
    ways[horizon, START:] = 1
    for t in range(horizon - 1, -1, -1):
        # Actions that are read alike are counted together.
        alike = np.bincount(2 * rules.symbols[t] + (np.arange(count) != recorded[t])).tolist()
        for read, actions in enumerate(alike):
            symbol, changed = divmod(read, 2)
            if symbol and actions:
                following = ways[t + 1][rules.after[:, symbol]]
                ways[t, :, changed:] += actions * following[:, : max_changes + 1 - changed]
    return ways

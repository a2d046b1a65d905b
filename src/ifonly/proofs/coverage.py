"""Whether a tree of sequences holds everything that the rules admit, and everything once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ifonly.proofs.question import Array, Bools, Ints, Question, Record, refuse

CHUNK = 4096
"""Rows in the largest temporary arrays."""


@dataclass(frozen=True)
class Rules:
    """What the rules of a question admit, counted backwards in time."""

    question: Question

    @cached_property
    def changes_to_go(self) -> Ints:
        """The fewest changes [T+1, M] that must follow a position before a step; more than T where nothing may."""
        question = self.question
        dead, count = question.horizon + 1, question.symbols.shape[1]
        to_go = np.full((question.horizon + 1, len(question.after)), dead)
        to_go[-1, 1:] = 0
        for t in range(question.horizon - 1, -1, -1):
            for action in range(count):
                cost = to_go[t + 1, question.after[:, question.symbols[t, action]]] + (action != question.observed[t])
                to_go[t] = np.minimum(to_go[t], cost)
        return to_go

    @cached_property
    def continuations(self) -> npt.NDArray[np.object_]:
        """How many admissible ways [T+1, M, K+1] follow a position before a step with at most so many changes: whole
        numbers of any size."""
        question, budget = self.question, self.question.max_changes
        ways = np.zeros((question.horizon + 1, len(question.after), budget + 1), dtype=object)
        ways[-1, 1:] = 1
        for t in range(question.horizon - 1, -1, -1):
            for action, symbol in enumerate(question.symbols[t]):
                following, changed = ways[t + 1, question.after[:, symbol]], int(action != question.observed[t])
                ways[t, :, changed:] += following[:, : budget + 1 - changed]
        return ways

    def sequence_count(self) -> int:
        """How many sequences are admissible."""
        return int(self.continuations[0, 1, -1])

    def fewest_changes(self) -> int:
        """Of any admissible sequence; more than T where there is none."""
        return int(self.changes_to_go[0, 1])

    def admissible(self, sequences: Ints) -> Bools:
        """Which sequences [N, T] obey every rule [N]."""
        fine = self.positions(sequences)[:, -1] > 0
        return np.asarray(fine & ((sequences != self.question.observed).sum(1) <= self.question.max_changes))

    def positions(self, sequences: Ints) -> Ints:
        """Where sequences [N, T] have led the automaton before each step, and in the end [N, T+1]."""
        question = self.question
        found = np.ones((len(sequences), question.horizon + 1), dtype=np.int64)
        for t in range(question.horizon):
            found[:, t + 1] = question.after[found[:, t], question.symbols[t, sequences[:, t]]]
        return found

    def children(self, sequences: Ints) -> Bools:
        """The further changes [N, T, A] below which some admissible sequence lies, for sequences [N, T]."""
        question = self.question
        changed = sequences != question.observed
        depth, last = changed.sum(1), last_changes(changed)
        steps, actions = np.arange(question.horizon), np.arange(question.symbols.shape[1])
        options = (actions != question.observed[:, None]) & (steps > last[:, None])[:, :, None]
        after = question.after[self.positions(sequences)[:, :-1, None], question.symbols]
        enough = depth[:, None, None] + 1 + self.changes_to_go[steps[:, None] + 1, after] <= question.max_changes
        return np.asarray(options & enough)


def last_changes(changed: Bools) -> Ints:
    """The step of the last change [N]; -1 where there is none."""
    horizon = changed.shape[1]
    last = horizon - 1 - changed[:, ::-1].argmax(1)
    return np.where(changed.any(1), last, -1)


@dataclass(frozen=True)
class LoggedNodes:
    """Sequences [N, T] of one kind, and a number for each [N]: its outcome, or a bound on all that lies below it."""

    kind: str
    rows: Ints
    values: Array

    @classmethod
    def read(cls, record: Record, kind: str, question: Question, budget: int) -> LoggedNodes:
        """Those that the log holds for a budget."""
        rows = record.whole(kind, (None, question.horizon), question.allowed.shape[1])
        mine = record.whole(f"{kind}/budgets", (len(rows),), question.max_changes + 1) == budget
        name = "bounds" if kind == "cuts" else "outcomes"
        return cls(kind, rows[mine], record.array(f"{kind}/{name}", (len(rows),), infinite=True)[mine])

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class LoggedTree:
    """The search tree of one budget: what was expanded, the leaves replayed and the subtrees cut."""

    expanded: LoggedNodes  # the recorded sequence, which is always expanded, is not among them
    leaves: LoggedNodes
    cuts: LoggedNodes
    thresholds: Array  # of the cuts [C]: what a bound had to exceed at that moment

    @classmethod
    def read(cls, record: Record, question: Question, budget: int) -> LoggedTree:
        """What the log holds for a budget."""
        expanded, leaves, cuts = (
            LoggedNodes.read(record, kind, question, budget) for kind in ("expanded", "leaves", "cuts")
        )
        budgets = record.whole("cuts/budgets", (None,), question.max_changes + 1)
        thresholds = record.array("cuts/thresholds", (len(budgets),), infinite=True)[budgets == budget]
        return cls(expanded, leaves, cuts, thresholds)

    def place(self, number: int) -> str:
        """Where a row is, of all of them one after the other."""
        for nodes in (self.expanded, self.leaves):
            if number < len(nodes):
                return f"{nodes.kind}, row {number}:"
            number -= len(nodes)
        return f"cuts, row {number}:"


@dataclass(frozen=True)
class Family:
    """Who descends from whom: nodes [E, T], the recorded sequence first, and the node [N] that each row continues."""

    nodes: Ints
    parents: Ints
    sequences: int
    """How many admissible ones the tree holds: each of them once."""


def check_coverage(rules: Rules, tree: LoggedTree) -> Family:
    """Refuse a tree that misses an admissible sequence or holds one twice."""
    question = rules.question
    rows = np.concatenate([tree.expanded.rows, tree.leaves.rows, tree.cuts.rows])
    changed = rows != question.observed
    depth, last = changed.sum(1), last_changes(changed)
    for name, wrong in (
        ("has no change", depth == 0),
        ("has more changes than the budget", depth > question.max_changes),
    ):
        if wrong.any():
            refuse(f"{tree.place(int(wrong.argmax()))} {name}")
    keys = _keys(rows)
    unique, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if len(unique) < len(keys):
        refuse(f"{tree.place(int(first[counts > 1][0]))} is there more than once")
    nodes = np.concatenate([question.observed[None], tree.expanded.rows])
    parents = _parents(question, tree, rows, nodes)
    _check_children(rules, tree, nodes, (rows, parents, last))
    total = _sizes(rules, tree, rows, last)
    if total != rules.sequence_count():
        refuse(f"the tree holds {total:,} sequences, and the rules admit {rules.sequence_count():,}")
    return Family(nodes, parents, total)


def _parents(question: Question, tree: LoggedTree, rows: Ints, nodes: Ints) -> Ints:
    """The nodes that rows [N, T] continue [N]: the same without their last change."""
    last = last_changes(rows != question.observed)
    without = rows.copy()
    without[np.arange(len(rows)), last] = question.observed[last]
    known, wanted = _keys(nodes), _keys(without)
    order = np.argsort(known)
    found = order[np.searchsorted(known[order], wanted).clip(max=len(nodes) - 1)]
    orphans = known[found] != wanted
    if orphans.any():
        refuse(f"{tree.place(int(orphans.argmax()))} continues a sequence that was not expanded")
    return np.asarray(found)


def _check_children(rules: Rules, tree: LoggedTree, nodes: Ints, below: tuple[Ints, Ints, Ints]) -> None:
    """Every change that may follow a node is there, and no other one."""
    rows, parent, last = below
    actions = rows[np.arange(len(rows)), last]
    for start in range(0, len(nodes), CHUNK):
        wanted = rules.children(nodes[start : start + CHUNK])
        mine = np.flatnonzero((parent >= start) & (parent < start + CHUNK))
        fine = wanted[parent[mine] - start, last[mine], actions[mine]]
        if not fine.all():
            refuse(f"{tree.place(int(mine[~fine][0]))} makes a change that the rules do not admit")
        wanted[parent[mine] - start, last[mine], actions[mine]] = False
        if wanted.any():
            node, step, action = (int(place[0]) for place in wanted.nonzero())
            name = "the recorded sequence" if start + node == 0 else f"expanded sequence {start + node - 1}"
            refuse(
                f"{int(wanted.sum()):,} changes are neither expanded, replayed nor cut; the first is action {action} "
                f"at step {step} after {name}"
            )


def _sizes(rules: Rules, tree: LoggedTree, rows: Ints, last: Ints) -> int:
    """How many admissible sequences the tree holds: its nodes', its leaves' and all below its cuts."""
    question = rules.question
    below = len(tree.expanded) + len(tree.leaves)
    own = int(rules.admissible(rows[:below]).sum()) + int(rules.admissible(question.observed[None]).sum())
    cuts, steps = rows[below:], last[below:]
    left = question.max_changes - (cuts != question.observed).sum(1)
    # From a change on nothing is left out: continuations count the sequence itself, too.
    return own + int(rules.continuations[steps + 1, rules.positions(cuts)[np.arange(len(cuts)), steps + 1], left].sum())


def _keys(rows: Ints) -> npt.NDArray[np.void]:
    """Rows as values that can be compared and sorted."""
    packed = np.ascontiguousarray(rows.astype(">i2"))
    return packed.view(np.dtype((np.void, packed.dtype.itemsize * packed.shape[1]))).ravel()

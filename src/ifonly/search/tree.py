"""The state of a branch-and-bound search: trees as arrays, and what keeps them consistent.

The algorithm itself is in `branch_and_bound`; the functions here offer sequences, prune, stop and add up.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound
from ifonly.bounds.factory import choose_bound, hard_bounds, is_enumerable
from ifonly.bounds.taylor import TaylorChildBound
from ifonly.problem.batch import Branches, Paths, ProblemBatch
from ifonly.result import Stats, Status
from ifonly.search.base import LimitReached, Monitor, if_useful
from ifonly.search.incumbents import Apart, Incumbents, Ranking
from ifonly.search.open_list import OpenList, OpenNodes
from ifonly.search.proof import ProofLog

MEMORY = 1024.0
"""MiB of open nodes before the search goes depth first."""
REPORT_SECONDS = 0.1
HARD_FROM = 5
"""Changes from which on a proof may not come in time: a wider search for good sequences comes first."""
HARD_STEPS = 2**19
"""Model steps after which an upper bound is looked for beside the search; an eighth of them for so many changes."""
HARD_SHARE = 0.25
"""Of the seconds granted, after which one is looked for where the search knows of none, in as many seconds more."""


@dataclass
class Tree:
    """The search trees of P problems with budget K, at one moment; [P, K+1] has one column per budget 0..K.

    Budgets are proven in order: the open nodes of a problem are those of its `active` budget, whose tree begins at the
    recorded sequence again. What smaller budgets found stays.

    Functions change it in place and in such an order that `upper_bounds` holds at every moment: an interruption
    anywhere leaves a valid bracket. Counters are int64, bounds and outcomes float64, though the Taylor bound evaluates
    some of its terms in float32, with margins (docs/theory.md, "Precision and rounding"). NaN never gets in: bounds
    pass `unknown_as_infinite`, so that NaN bounds are never pruned, and NaN outcomes are refused.
    """

    monitor: Monitor
    batch: ProblemBatch
    bound: ChildBound | None
    """Leads the search; None until it is made."""
    incumbents: Incumbents
    ranking: Ranking | None
    """The best sequences of the full budget; None where only the best is asked for."""
    apart: Apart | None
    """What incumbents must differ from; None: from nothing."""
    open_list: OpenList
    active: Tensor  # [P], the budget that is being proven; 0 before the search begins
    infeasible: Tensor  # [P, K+1] bool, budgets too small for the changes that rules require
    cutoffs: Tensor  # [P, K+1], incumbents plus what a better one must gain: what does not exceed it is pruned
    fathomed_bounds: Tensor  # [P, K+1], on what a gap or a node limit left unexplored
    root_bounds: Tensor  # [P, K+1], infinite until the root is bounded, minus infinity once its children are open
    outer_bounds: Tensor  # [P, K+1], proven beside the search, for budgets that it may not prove; else infinite
    expanded: Tensor  # [P]
    generated: Tensor  # [P]
    model_steps: Tensor  # [P]
    at_node_limit: Tensor  # [P] bool, problems that were stopped by it
    bracketed: set[int] = field(default_factory=set)
    """Problems whose outer bounds were looked for."""
    selected: OpenNodes | None = None
    """Taken from the open list, their children not yet all in it."""
    reported: float = -math.inf
    """When progress was last reported."""

    @property
    def proof(self) -> ProofLog | None:
        """Where the search tells what it expands, replays and cuts; None: nobody asked."""
        return self.monitor.proof


@dataclass(frozen=True)
class ExpandedNodes:
    """Nodes of one depth, replayed."""

    depth: int  # the number of changes
    problem: Tensor  # [N] int64
    step: Tensor  # [N] int64, of the last change; -1 at the root
    action: Tensor  # [N] int64
    sequences: Tensor  # [N, T] int16
    bounds: Tensor  # [N] float64, on all below the node, with at most `budget` changes
    paths: Paths
    budget: int  # the one that is being proven

    def branches(self, rows: Tensor, step: Tensor, sequences: Tensor) -> Branches:
        """Where `sequences` [n, T] leave the paths of some `rows` [n] at `step` [n]."""
        states, earned = self.paths.states[rows, step], self.paths.earned[rows, step]
        return Branches(self.problem[rows], sequences, step, states, earned)


@dataclass(frozen=True)
class ChildNodes:
    """Children of expanded nodes: row `parent` with a further change, `action` at `step`."""

    parent: Tensor  # [N] int64
    step: Tensor  # [N] int64
    action: Tensor  # [N] int64
    bounds: Tensor  # [N] float64, on all below the child, within the budget that is being proven

    def __len__(self) -> int:
        return len(self.parent)

    def select(self, rows: Tensor) -> ChildNodes:
        """Some of the rows: a mask or an index."""
        return ChildNodes(self.parent[rows], self.step[rows], self.action[rows], self.bounds[rows])


def new_tree(
    batch: ProblemBatch,
    monitor: Monitor,
    *,
    ranking: Ranking | None = None,
    apart: Apart | None = None,
    bound: ChildBound | None = None,
) -> Tree:
    """Trees of which nothing is known yet."""
    limits, device = monitor.limits, batch.device
    unknown = torch.full((batch.count, batch.budget + 1), torch.inf, dtype=torch.float64, device=device)
    zeros = torch.zeros(batch.count, dtype=torch.int64, device=device)
    required = batch.changes(torch.arange(batch.count, device=device), batch.nearest)
    memory = MEMORY if limits.memory is None else limits.memory
    return Tree(
        monitor=monitor,
        batch=batch,
        bound=bound,
        incumbents=Incumbents(batch),
        ranking=ranking,
        apart=apart,
        open_list=OpenList(batch.count, memory=memory * 2**20),
        active=zeros.clone(),
        infeasible=torch.arange(batch.budget + 1, device=device) < required.unsqueeze(1),
        cutoffs=-unknown,
        fathomed_bounds=-unknown,
        root_bounds=unknown,
        outer_bounds=unknown.clone(),
        expanded=zeros.clone(),
        generated=zeros.clone(),
        model_steps=zeros.clone(),
        at_node_limit=torch.zeros_like(zeros, dtype=torch.bool),
    )


def offer(tree: Tree, problem: Tensor, sequences: Tensor, outcomes: Tensor, *, ranked: bool = True) -> None:
    """Consider admissible sequences [N, T] as incumbents and, if `ranked`, as alternatives; prune the open list.

    Those that are not `ranked` may end with an idle change, with which none may count as far apart from others.
    """
    if tree.apart is not None:
        fine = tree.apart.allows(sequences)
        if not ranked:
            fine &= sequences[:, -1] == tree.batch.observed[problem, -1]
        problem, sequences, outcomes = problem[fine], sequences[fine], outcomes[fine]
    if not len(problem):
        return
    finite = outcomes < torch.inf  # false for NaN; minus infinity is merely bad
    if not finite.all():
        tree.batch.problems[int(problem[~finite][0])].require_finite(outcomes[~finite])
    sequences = sequences.to(torch.int16)
    tree.incumbents.offer(problem, outcomes, sequences)
    thresholds = tree.incumbents.by_budget()
    if tree.ranking is not None:
        if ranked:
            tree.ranking.offer(problem, outcomes, sequences)
        thresholds[:, -1] = tree.ranking.thresholds()
    cutoffs = thresholds + granted(tree)
    raised = not torch.equal(cutoffs, tree.cutoffs)
    tree.cutoffs = cutoffs
    whole = tree.open_list.all() if raised else None
    if whole is not None:
        alive = exceed_cutoffs(tree, whole.problem, whole.bounds)
        drop(tree, whole.select(~alive))
        tree.open_list.keep(alive)


def drop(tree: Tree, nodes: OpenNodes) -> None:
    """Open nodes were pruned since cutoffs rose."""
    fathom(tree, nodes.problem, nodes.bounds)
    if tree.proof is not None:
        cutoffs = active_cutoffs(tree, nodes.problem)
        tree.proof.cut(int(tree.active[0]), nodes.sequences, nodes.bounds, cutoffs)


def granted(tree: Tree) -> Tensor:
    """What a better sequence must gain to be looked for [P, K+1]: the tolerance, or the gap granted."""
    limits, gained = tree.monitor.limits, tree.incumbents.by_budget()
    if limits.gap_is_share:
        gained = gained - tree.batch.observed_outcomes.unsqueeze(1)
    return torch.maximum(tree.batch.tolerance.unsqueeze(1), limits.allowed_gap(gained))


def active_cutoffs(tree: Tree, problem: Tensor) -> Tensor:
    """The cutoffs [N] of the budgets that are being proven for problems [N]."""
    return tree.cutoffs[problem, tree.active[problem]]


def exceed_cutoffs(tree: Tree, problem: Tensor, bounds: Tensor) -> Tensor:
    """Whether bounds [N, ...] exceed the cutoff of the budget that is being proven [N, ...]; none does where the bound
    beside the search does not."""
    cutoffs = active_cutoffs(tree, problem)
    cutoffs = torch.where(tree.outer_bounds[problem, tree.active[problem]] <= cutoffs, torch.inf, cutoffs)
    return bounds > cutoffs.view(-1, *[1] * (bounds.dim() - 1))


def anchors_are_late(tree: Tree) -> bool:
    """Whether anchors, which take seconds to make, would lead a search that is nearly done: of the budgets whose best
    earns less than rewards allow, all sequences can be enumerated."""
    first = tree.batch.problems[0]
    if choose_bound(first) != "lipschitz":
        return False
    ceilings = (tree.batch.largest_outcomes - tree.batch.tolerance).unsqueeze(1)
    left = (tree.cutoffs < ceilings).any(0).nonzero().flatten().tolist()
    return all(is_enumerable(first, budget) for budget in left)


def fathom(tree: Tree, problem: Tensor, bounds: Tensor, *, where: Tensor | None = None) -> None:
    """Keep the largest of the bounds [N, ...] that were pruned (`where` some were).

    Without a gap there is nothing to keep: no pruned bound is above an incumbent by more than the tolerance.
    """
    if tree.monitor.limits.is_exact or not bounds.numel():
        return
    if where is not None:
        bounds = bounds.masked_fill(~where, -torch.inf)
    keep_largest(tree, tree.fathomed_bounds, problem, bounds.flatten(1).amax(1) if bounds.dim() > 1 else bounds)


def keep_largest(tree: Tree, table: Tensor, problem: Tensor, bounds: Tensor) -> None:
    """Raise the entries of `table` [P, K+1] of the budgets that are being proven to the largest of their bounds [N], in
    place."""
    table.view(-1).scatter_reduce_(0, problem * table.shape[1] + tree.active[problem], bounds, "amax")


def upper_bounds(tree: Tree) -> Tensor:
    """Proven upper bounds [P, K+1] for every budget, at any moment.

    The largest of what was found, what was pruned for the sake of a gap, and what is still open.
    """
    found = tree.incumbents.by_budget()
    upper = torch.stack([found, tree.fathomed_bounds, tree.root_bounds]).amax(0)
    for nodes in (tree.open_list.all(), tree.selected):
        if nodes is not None:
            keep_largest(tree, upper, nodes.problem, nodes.bounds)
    limits = torch.minimum(tree.outer_bounds, tree.batch.largest_outcomes.unsqueeze(1))
    upper = torch.maximum(torch.minimum(upper, limits), found)
    gained = torch.maximum(found - tree.batch.observed_outcomes.unsqueeze(1), granted(tree))
    upper = if_useful(upper, found, tree.batch.plausible_outcomes.unsqueeze(1), gained)
    upper = upper.masked_fill(tree.infeasible, -torch.inf)
    # What a larger budget cannot exceed, a smaller one cannot either.
    return upper.flip(1).cummin(1).values.flip(1)


def bracket_hard(tree: Tree) -> None:
    """Bounds beside the search on budgets of which it knows too little: once it has taken so many steps, or so much of
    its seconds that none may be left later."""
    if tree.bound is None or tree.bound.method != TaylorChildBound.method or tree.apart or tree.proof:
        return
    long = tree.model_steps >= torch.where(tree.active >= HARD_FROM, HARD_STEPS // 8, HARD_STEPS)
    share = HARD_SHARE * (math.inf if (seconds := tree.monitor.limits.seconds) is None else seconds)
    late = tree.monitor.elapsed() >= share and len(tree.bracketed) < tree.batch.count
    due = long | (upper_bounds(tree) == torch.inf).any(1) if late else long
    for row in (due & (tree.open_list.counts().to(due.device) > 0)).nonzero().flatten().tolist():
        if row not in tree.bracketed:
            tree.bracketed.add(row)
            end = math.inf if long[row] else time.perf_counter() + share / tree.batch.count
            for bounds in hard_bounds(tree.batch.problems[row], int(tree.active[row])):
                tree.outer_bounds[row] = bounds
                stop_at_limits(tree)
                if time.perf_counter() > end:
                    break


def count(counter: Tensor, problem: Tensor, amount: int | Tensor) -> None:
    """Add an amount, or one for each row [N], to the counter [P] of its problem."""
    counter.index_add_(0, problem, torch.as_tensor(amount, device=counter.device).expand(len(problem)))


def stop_at_limits(tree: Tree) -> None:
    """Report now and then; stop all at the time limit, and each problem at its node limit."""
    stop_at_seconds(tree)
    limit = tree.monitor.limits.nodes
    if limit is None:
        return
    if limit == 0:
        raise LimitReached(Status.NODE_LIMIT)
    spent, whole = tree.expanded >= limit, tree.open_list.all()
    if whole is not None and spent[whole.problem].any():
        mine = spent[whole.problem]
        tree.at_node_limit[whole.problem[mine]] = True
        keep_largest(tree, tree.fathomed_bounds, whole.problem[mine], whole.bounds[mine])
        tree.open_list.keep(~mine)


def nodes_are_spent(tree: Tree, waiting: Tensor) -> Tensor:
    """Which problems [P] may expand no more nodes; those that are `waiting` [P] to are stopped by it."""
    limit = tree.monitor.limits.nodes
    spent = torch.zeros_like(waiting) if limit is None else tree.expanded >= limit
    tree.at_node_limit |= spent & waiting
    return spent


def stop_at_seconds(tree: Tree) -> None:
    """Report now and then; stop at the time limit."""
    monitor, now = tree.monitor, time.perf_counter()
    if now - tree.reported > REPORT_SECONDS:
        tree.reported = now
        update_stats(tree)
        best, upper = tree.incumbents.by_budget()[:, -1], upper_bounds(tree)[:, -1]
        # Of several problems, the one that is farthest from its proof.
        worst = int((upper - best).nan_to_num(0.0).argmax())
        monitor.report(float(best[worst]), float(upper[worst]), open=len(tree.open_list))
    monitor.stop_at_seconds()


def update_stats(tree: Tree) -> None:
    """Tell the monitor about the work on all problems."""
    stats = tree.monitor.stats
    stats.nodes_expanded, stats.nodes_generated = int(tree.expanded.sum()), int(tree.generated.sum())
    stats.model_steps = int(tree.model_steps.sum())


def stats_of(tree: Tree, number: int) -> Stats:
    """One problem's share of the work; of the time, an equal one."""
    return Stats(
        nodes_expanded=int(tree.expanded[number]),
        nodes_generated=int(tree.generated[number]),
        model_steps=int(tree.model_steps[number]),
        seconds_bounds=tree.monitor.stats.seconds_bounds / tree.batch.count,
    )

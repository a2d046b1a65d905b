"""Branch and bound over changes: select open nodes, expand them, bound their children, prune, stop.

A node is a sequence with some changes, after the last of which the observed actions follow. A child makes one more
change, at a later step, so that every sequence is met once (docs/theory.md, "Every budget, alternatives and rules").
Budgets are proven in order, 1, 2, ..., K: the search for each begins at the recorded sequence again and knows what the
smaller ones found, so that no work is done for a budget while a smaller one is open.
All of it runs on arrays: P problems are searched together, and none of their answers depends on the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, get_args

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, Nodes, unknown_as_infinite
from ifonly.bounds.factory import SMALL, BoundName, make_child_bound
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ROWS, Paths, ProblemBatch, changed, ranks_within
from ifonly.progress import clock
from ifonly.result import Alternative, Stats, Status
from ifonly.search.base import LimitReached, Monitor, Solution, Solver
from ifonly.search.finalize import finalize
from ifonly.search.incumbents import Apart, Ranking
from ifonly.search.lookahead import one_step_bounds, replay_or_fathom
from ifonly.search.open_list import OpenNodes
from ifonly.search.prefix_cache import PrefixCache
from ifonly.search.tree import (
    HARD_FROM,
    ChildNodes,
    ExpandedNodes,
    Tree,
    active_cutoffs,
    anchors_are_late,
    bracket_hard,
    count,
    drop,
    exceed_cutoffs,
    fathom,
    granted,
    new_tree,
    nodes_are_spent,
    offer,
    stop_at_limits,
    stop_at_seconds,
    update_stats,
)
from ifonly.search.warm_start import WarmStart, greedy_warm_start, wide_start

ELEMENTS = 2**21
"""Numbers in one array of bounds, at most."""
FIRST_LEAVES = 1024
"""Leaves tried first, those with the best bounds; then twice as many, and so on."""
AT_ONCE = 1024
"""Children of a problem, at most, that are not bounded one step ahead before they are expanded."""


@dataclass(frozen=True)
class BranchAndBound(Solver):
    """Exact search led by bounds on what every further change can bring; proves the best outcome of every budget.

    `batch` nodes are expanded together, at most; it hardly changes the answer (which of equals is found).
    `alternatives` asks for so many of the best sequences, `within` for all whose outcome lies so close to the best
    (at most `alternatives` of them, or 1000 if that is 1). With `apart` above 1, each alternative is the best of the
    sequences that differ in at least so many steps from every one before it, each proven by a search of its own. A
    change of the last step that changes no reward is left out of all of it.
    `bound` says what leads the search: "taylor" (expansions; needs a smooth model and a reward without upward kinks),
    "lipschitz" (the paper's anchors; needs finite constants) or "none" (enumerates); "auto" takes what suits.
    """

    batch: int = 2048
    alternatives: int = 1
    within: float = 0.0
    apart: int = 1
    bound: BoundName = "auto"

    name: ClassVar[str] = "branch-and-bound"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("batch", "alternatives", "apart"):
            check_whole(f"branch and bound: {name}", getattr(self, name), least=1)
        if not 0 <= self.within < math.inf:
            raise InputError(f"branch and bound: within={self.within} must be zero or positive (units of the outcome).")
        if self.within > 0 and self.apart > 1:
            raise InputError("branch and bound: within and apart exclude each other; leave out one of them.")
        if self.bound not in get_args(BoundName):
            raise InputError(f"branch and bound: bound {self.bound!r}; choose from {list(get_args(BoundName))}.")

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Search until every budget is proven; a limit or Ctrl-C leaves a valid bracket."""
        return branch_and_bound(self, [problem], monitor)[0][0]


def branch_and_bound(
    settings: BranchAndBound,
    problems: Sequence[BaseProblem],
    monitor: Monitor,
    *,
    bound: ChildBound | None = None,
    bounded: Sequence[BaseProblem] | None = None,
    known: Tensor | None = None,
) -> tuple[list[Solution], Tree]:
    """Search P problems (or ensembles) that share models, reward, horizon and budget until every budget is proven.

    The `bound` that leads is made of `bounded`, the same problems, perhaps under fewer rules, unless it is given.
    `known` [n, T] are good sequences of the first problem. A limit or Ctrl-C leaves valid brackets. What is known of
    each problem comes back, and the tree that was searched.
    """
    batch = ProblemBatch(problems)
    wants_more = settings.apart == 1 and (settings.alternatives > 1 or settings.within > 0)
    ranking = Ranking(batch, alternatives=settings.alternatives, within=settings.within) if wants_more else None
    tree = new_tree(batch, monitor, ranking=ranking, bound=bound)
    offer_given(tree, known)
    stopped = run(tree, settings, bounded or problems)
    if tree.proof is not None:
        tree.proof.complete = stopped is None and not bool(tree.at_node_limit.any())
    solutions = finalize(tree, stopped)
    if settings.apart > 1 and settings.alternatives > 1:
        solutions = [find_apart(tree, settings, number, solution) for number, solution in enumerate(solutions)]
        update_stats(tree)
    return solutions, tree


def find_apart(tree: Tree, settings: BranchAndBound, number: int, first: Solution) -> Solution:
    """The solution with alternatives that differ from each other in at least `settings.apart` steps.

    The first is the answer; each further one is the best of all sequences that are far enough from those before. It is
    searched for anew, since what is best there depends on which ones came before. The list is proven if all of these
    searches end, and shorter than asked for where nothing is far enough.
    """
    problem = tree.batch.problems[number]
    batch = tree.batch if tree.batch.count == 1 else ProblemBatch([problem])
    bound = tree.bound if tree.batch.count == 1 else None
    outcome = float(batch.rollout(torch.zeros(1, dtype=torch.int64, device=batch.device), first.actions[None]).outcomes)
    found, proven = [Alternative(first.actions.cpu().numpy(), outcome)], first.status is Status.OPTIMAL
    chosen = first.actions[None].to(torch.int64)
    while proven and len(found) < settings.alternatives:
        apart = Apart(chosen, settings.apart)
        if not apart.leaves_any(batch):
            break
        part = new_tree(batch, _rest_of(tree.monitor), apart=apart, bound=bound)
        offer_given(part, None)
        proven = run(part, settings, [problem]) is None and not bool(part.at_node_limit.any())
        proven &= bool((granted(part) <= problem.tolerance).all())
        for counter in ("expanded", "generated", "model_steps"):
            getattr(tree, counter)[number] += getattr(part, counter)[0]
        update_stats(tree)
        bound, best = part.bound, part.incumbents.best[0].max()
        if best == -torch.inf:
            break
        sequence = part.incumbents.sequences[0, part.incumbents.simplest()[0, -1]].to(torch.int64)
        chosen = torch.cat([chosen, sequence[None]])
        found.append(Alternative(sequence.cpu().numpy(), float(problem.outcome(sequence))))
    details = {**first.certificate.details, "alternatives_proven": proven, "alternatives_cut": False}
    return replace(first, alternatives=tuple(found), certificate=replace(first.certificate, details=details))


def _rest_of(monitor: Monitor) -> Monitor:
    """For a further search within the same limits; it is no part of the log of a proof."""
    limits, stats = monitor.limits, monitor.stats
    if limits.nodes is not None:
        limits = replace(limits, nodes=max(0, limits.nodes - stats.nodes_expanded))
    return replace(monitor, limits=limits, proof=None, stats=Stats())


def run(tree: Tree, settings: BranchAndBound, bounded: Sequence[BaseProblem]) -> Status | None:
    """Search until done; what stopped it, or None."""
    stopped = None
    try:
        with clock(partial(stop_at_seconds, tree)):
            search(tree, settings, bounded)
    except LimitReached as limit:
        stopped = limit.status
    except KeyboardInterrupt:
        stopped = Status.INTERRUPTED
    update_stats(tree)
    return stopped


def search(tree: Tree, settings: BranchAndBound, bounded: Sequence[BaseProblem]) -> None:
    """Search until nothing is open; raises `LimitReached`."""
    stop_at_limits(tree)
    if tree.batch.budget == 0:
        tree.root_bounds = torch.full_like(tree.root_bounds, -torch.inf)
        return
    cache = PrefixCache(tree.batch)
    warm_start(tree, cache)
    root = bound_root(tree, bound := leading_bound(tree, settings, bounded))
    while begin_budgets(tree, bound, root, cache):
        stop_at_limits(tree)
        bracket_hard(tree)
        for selected in select(tree, settings.batch):
            nodes = expand(tree, selected, cache)
            bounds = bound_children(bound, nodes)
            branch(tree, bound, nodes, prune(tree, nodes, bounds))


def offer_given(tree: Tree, known: Tensor | None) -> None:
    """Something to return at once: the observed sequences, or the nearest feasible ones, and what is known."""
    batch = tree.batch
    replay_and_offer(tree, torch.arange(batch.count, device=batch.device), batch.nearest, ranked=True)
    if known is not None:
        first = torch.zeros(len(known), dtype=torch.int64, device=batch.device)
        fine = batch.obey_rules(first, known)
        # Under these rules a known sequence may end with an idle change: it is no alternative to itself without it.
        replay_and_offer(tree, first[fine], known[fine], ranked=False)


def replay_and_offer(tree: Tree, problem: Tensor, sequences: Tensor, *, ranked: bool) -> None:
    """Replay whole sequences [N, T] that obey the rules, and offer those that are supported."""
    paths = tree.batch.rollout(problem, sequences)
    fine = tree.batch.have_support(problem, sequences, paths.states)
    count(tree.model_steps, problem, tree.batch.horizon - 1)
    offer(tree, problem[fine], sequences[fine], paths.outcomes[fine], ranked=ranked)


def warm_start(tree: Tree, cache: PrefixCache) -> None:
    """First incumbents, so that there is a cutoff before anything is opened."""
    tree.model_steps += cache.steps_taken
    offer_starts(tree, greedy_warm_start(tree.batch, cache))


def offer_starts(tree: Tree, rounds: Iterator[WarmStart]) -> None:
    """What a local search finds, round by round."""
    for starts in rounds:
        count(tree.model_steps, starts.problem, starts.model_steps)
        offer(tree, starts.problem, starts.sequences, starts.outcomes, ranked=False)
        stop_at_limits(tree)


def leading_bound(tree: Tree, settings: BranchAndBound, bounded: Sequence[BaseProblem]) -> ChildBound:
    """The bound that leads the search: the one given, or a new one."""
    if tree.bound is None:
        started = time.perf_counter()
        kept = settings.apart > 1 or bounded[0] is not tree.batch.problems[0]  # for other searches
        name = "none" if not kept and settings.bound == "auto" and anchors_are_late(tree) else settings.bound
        tree.bound = make_child_bound(bounded, name)
        tree.monitor.stats.seconds_bounds += time.perf_counter() - started
    return tree.bound


def select(tree: Tree, size: int) -> Iterator[OpenNodes]:
    """Take the best open nodes, at most `size` of every problem.

    They come in parts of one depth and budget that fit memory, the deepest first, without those that were pruned
    meanwhile.
    """
    batch, limit, whole = tree.batch, tree.monitor.limits.nodes, tree.open_list.all()
    if whole is None:
        return
    at_most = torch.full_like(tree.expanded, size)
    chosen = tree.open_list.next(at_most if limit is None else torch.minimum(at_most, limit - tree.expanded))
    tree.selected = whole.select(chosen)
    tree.open_list.keep(~chosen)
    places = tree.selected.depth * (batch.budget + 1) + tree.active[tree.selected.problem]
    for place in places.unique().flip(0).tolist():
        group = (places == place).nonzero().squeeze(-1)
        depth, budget = divmod(place, batch.budget + 1)
        width = batch.horizon * batch.action_count * (budget - depth) * batch.members
        for rows in group.split(max(1, min(batch.rows, ELEMENTS * batch.rows // ROWS // width))):
            stop_at_seconds(tree)
            nodes = tree.selected.select(rows)
            # Cutoffs may have risen since the nodes were selected.
            alive = exceed_cutoffs(tree, nodes.problem, nodes.bounds)
            drop(tree, nodes.select(~alive))
            if alive.any():
                yield nodes.select(alive)
    tree.selected = None


def expand(tree: Tree, nodes: OpenNodes, cache: PrefixCache) -> ExpandedNodes:
    """Replay nodes of one depth, and offer those that are feasible themselves."""
    paths, steps = cache.replay(nodes.problem, nodes.sequences.to(torch.int64))
    count(tree.expanded, nodes.problem, 1)
    count(tree.model_steps, nodes.problem, steps)
    feasible = tree.batch.keep_rules(nodes.problem, nodes.sequences).nonzero().squeeze(-1)
    if tree.proof is not None:
        tree.proof.expanded(int(tree.active[0]), nodes.sequences, paths.outcomes)
    offer(tree, nodes.problem[feasible], nodes.sequences[feasible], paths.outcomes[feasible])
    depth, budget = int(nodes.depth[0]), int(tree.active[nodes.problem[0]])
    return ExpandedNodes(depth, nodes.problem, nodes.step, nodes.action, nodes.sequences, nodes.bounds, paths, budget)


def bound_children(bound: ChildBound, nodes: ExpandedNodes) -> Tensor:
    """Upper bounds [N, T, A] on all sequences below each child, within the nodes' budget."""
    paths, left = nodes.paths, nodes.budget - nodes.depth
    asked = Nodes(
        nodes.depth, nodes.problem, nodes.step + 1, states=paths.states, outcomes=paths.totals, changes_left=left
    )
    return bound.children(asked)[:, left - 1]


def bound_root(tree: Tree, bound: ChildBound) -> Tensor:
    """Upper bounds [P, K, T, A] on all sequences below every single change: what is known of each budget at first."""
    bounds = unknown_as_infinite(bound.root())
    count(tree.expanded, torch.arange(tree.batch.count, device=tree.batch.device), 1)
    no_change = torch.full_like(tree.root_bounds[:, :1], -torch.inf)
    tree.root_bounds = torch.cat([no_change, bounds.flatten(2).amax(2)], dim=1)
    return bounds


def begin_budgets(tree: Tree, bound: ChildBound, root: Tensor, cache: PrefixCache) -> bool:
    """Go on to the next budget where nothing is open, until something is; whether anything is left to do."""
    while True:
        waiting = (tree.open_list.counts().to(tree.active.device) == 0) & (tree.active < tree.batch.budget)
        stop_at_limits(tree)
        waiting &= ~nodes_are_spent(tree, waiting)
        if not waiting.any():
            return len(tree.open_list) > 0
        tree.active[waiting] += 1
        for budget in tree.active[waiting].unique().tolist():
            problem = (waiting & (tree.active == budget)).nonzero().squeeze(-1)
            if budget == HARD_FROM:
                hard = [row for row in problem.tolist() if tree.batch.problems[row].sequence_count() > SMALL]
                offer_starts(tree, wide_start(tree.batch, cache, hard))
            begin(tree, bound, problem, budget, root, cache.observed)


def begin(tree: Tree, bound: ChildBound, problem: Tensor, budget: int, root: Tensor, observed: Paths) -> None:
    """Open the children of the observed sequences of problems [n], which have no changes, for one budget."""
    nodes = ExpandedNodes(
        depth=0,
        problem=problem,
        step=torch.full_like(problem, -1),
        action=torch.zeros_like(problem),
        sequences=tree.batch.observed[problem].to(torch.int16),
        bounds=tree.root_bounds[problem, budget],
        paths=observed.select(problem),
        budget=budget,
    )
    branch(tree, bound, nodes, prune(tree, nodes, root[problem, budget - 1]))
    tree.root_bounds[problem, budget] = -torch.inf


def prune(tree: Tree, nodes: ExpandedNodes, bounds: Tensor) -> ChildNodes:
    """The children that rules and support admit and whose bounds [N, T, A] exceed the cutoff."""
    options = possible_changes(tree, nodes)
    # Validity is enough: both its own and its parent's bound hold for a child, so the smaller does.
    bounds = torch.minimum(unknown_as_infinite(bounds), nodes.bounds[:, None, None])
    alive = exceed_cutoffs(tree, nodes.problem, bounds) & options
    fathom(tree, nodes.problem, bounds, where=options & ~alive)
    if tree.proof is not None:
        tree.proof.cut_changes(nodes, options & ~alive, bounds, active_cutoffs(tree, nodes.problem))
    parent, step, action = alive.nonzero(as_tuple=True)
    return ChildNodes(parent, step, action, bounds[parent, step, action])


def possible_changes(tree: Tree, nodes: ExpandedNodes) -> Tensor:
    """The changes [N, T, A] that may come next: rules permit them, support holds, and the last is not idle."""
    batch = tree.batch
    options = batch.further_changes(nodes.problem, nodes.step, nodes.sequences, nodes.budget - nodes.depth)
    # Where the observed action may stay, another one with the same reward is pointless at the last step.
    idle = batch.idle_last_changes(nodes.problem, nodes.paths.states[:, -1])
    idle &= batch.keep_rules(nodes.problem, nodes.sequences).unsqueeze(1)
    if tree.proof is not None:
        tree.proof.idle(nodes, idle & options[:, -1], batch.problems[0].change_cost)
    options[:, -1] &= ~idle
    return options & batch.supported_changes(nodes.problem, nodes.paths.states, options.any(2))


def branch(tree: Tree, bound: ChildBound, nodes: ExpandedNodes, children: ChildNodes) -> None:
    """Children without changes left are leaves, tried at once; the others are opened if they survive the lookahead."""
    depth = nodes.depth + 1
    if depth == nodes.budget:
        count(tree.generated, nodes.problem[children.parent], 1)
        try_leaves(tree, bound, nodes, children)
        return
    children = look_ahead(tree, bound, nodes, children)
    problem = nodes.problem[children.parent]
    count(tree.generated, problem, 1)
    sequences = changed(nodes.sequences[children.parent], children.step, children.action)
    depths = torch.full_like(problem, depth)
    tree.open_list.add(OpenNodes(problem, children.step, children.action, depths, sequences, children.bounds))


def look_ahead(tree: Tree, bound: ChildBound, nodes: ExpandedNodes, children: ChildNodes) -> ChildNodes:
    """The children whose bounds exceed a cutoff also one step after their change, with their bounds there.

    With two and more changes to go that step excludes few, and those that are expanded at once are bounded better then.
    """
    problem, step, left = nodes.problem[children.parent], children.step, nodes.budget - nodes.depth - 1
    are_next = left > 1 and len(children) <= AT_ONCE * tree.batch.count
    if not bound.has_reward_to_go or not len(children) or are_next:
        return children
    count(tree.model_steps, problem, (step < tree.batch.horizon - 1).long())
    branches = nodes.branches(children.parent, step, nodes.sequences[children.parent])
    # Bounds for fewer changes than are left are not asked for.
    bounds, cutoffs = children.bounds.new_full((2, len(children), left + 1), -torch.inf).unbind(0)
    bounds[:, left], cutoffs[:, :left], cutoffs[:, left] = children.bounds, torch.inf, active_cutoffs(tree, problem)
    bounds = one_step_bounds(tree.batch, bound, branches, children.action, bounds, cutoffs)[:, left]
    alive = exceed_cutoffs(tree, problem, bounds)
    fathom(tree, problem[~alive], bounds[~alive])
    if tree.proof is not None:
        sequences = changed(branches.sequences, step, children.action)[~alive]
        tree.proof.cut(nodes.budget, sequences, bounds[~alive], active_cutoffs(tree, problem)[~alive])
    return ChildNodes(children.parent[alive], step[alive], children.action[alive], bounds[alive])


def try_leaves(tree: Tree, bound: ChildBound, nodes: ExpandedNodes, leaves: ChildNodes) -> None:
    """Replay leaves, the most promising of each problem first: what they find prunes others."""
    problem, bounds = nodes.problem[leaves.parent], leaves.bounds
    turn = (ranks_within(problem, bounds) / FIRST_LEAVES + 1).log2().long()
    turn[bounds == torch.inf] = 0  # nothing is known about any of them
    for number in range(int(turn.max()) + 1 if len(turn) else 0):
        mine = (turn == number).nonzero().squeeze(-1)
        alive = exceed_cutoffs(tree, problem[mine], bounds[mine])
        cut_leaves(tree, nodes, leaves.select(mine[~alive]))
        for part in mine[alive].split(tree.batch.rows):
            stop_at_seconds(tree)
            replay_leaves(tree, bound, nodes, leaves.select(part))


def cut_leaves(tree: Tree, nodes: ExpandedNodes, leaves: ChildNodes) -> None:
    """Leaves were pruned since the cutoff rose."""
    problem = nodes.problem[leaves.parent]
    fathom(tree, problem, leaves.bounds)
    if tree.proof is not None:
        sequences = changed(nodes.sequences[leaves.parent], leaves.step, leaves.action)
        tree.proof.cut(nodes.budget, sequences, leaves.bounds, active_cutoffs(tree, problem))


def replay_leaves(tree: Tree, bound: ChildBound, nodes: ExpandedNodes, leaves: ChildNodes) -> None:
    """Replay the leaves that are feasible, as long as their bounds exceed the cutoff, and offer what is complete."""
    batch = tree.batch
    problem = nodes.problem[leaves.parent]
    sequences = changed(nodes.sequences[leaves.parent], leaves.step, leaves.action)
    feasible = batch.keep_rules(problem, sequences)
    leaves, problem, sequences = leaves.select(feasible), problem[feasible], sequences[feasible]
    branches = nodes.branches(leaves.parent, leaves.step, sequences)
    replayed = replay_or_fathom(batch, bound, branches, active_cutoffs(tree, problem))
    count(tree.model_steps, problem, replayed.steps)
    fathom(tree, problem, replayed.fathomed_bounds)
    done = (replayed.fathomed_bounds == -torch.inf).nonzero().squeeze(-1)
    if tree.proof is not None:
        cut = replayed.fathomed_bounds != -torch.inf
        cutoffs = active_cutoffs(tree, problem)[cut]
        tree.proof.cut(nodes.budget, sequences[cut], replayed.fathomed_bounds[cut], cutoffs)
        tree.proof.replayed(nodes.budget, sequences[done], replayed.outcomes[done])
    offer(tree, problem[done], sequences[done], replayed.outcomes[done])

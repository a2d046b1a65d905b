"""Branch and bound over changes: nodes are rolled out, their children bounded all at once, few of them followed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, Nodes, unknown_as_infinite
from ifonly.bounds.factory import BoundName, make_child_bound
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ROWS, ProblemBatch, changed
from ifonly.search.ahead import Places, Rolled, follow, sharpened
from ifonly.search.base import Monitor, Solution, Solver
from ifonly.search.finalize import Knowledge, finalize
from ifonly.search.incumbents import Incumbents, Ranking
from ifonly.search.paths import KnownPaths
from ifonly.search.pool import Candidates, OpenList, ranks_within
from ifonly.search.result import Stats, Status
from ifonly.search.starts import greedy_starts

ELEMENTS = 2**21
"""Numbers in one array of bounds, at most."""
FIRST_LEAVES = 1024
"""Complete sequences tried first, those with the best bounds; then twice as many, and so on."""
MEMORY = 1024.0
"""MiB of open candidates before the search goes depth first."""
REPORT_SECONDS = 0.1


@dataclass(frozen=True)
class BranchAndBound(Solver):
    """Exact search led by bounds on what every further change can bring; proves the best outcome of every budget.

    `batch` candidates are rolled out together, at most; it hardly changes the answer (which of equals is found).
    `alternatives` asks for so many of the best sequences, `within` for all whose outcome lies so close to the best
    (at most `alternatives` of them, or 1000 if that is 1). A change of the last step that changes no reward is left
    out of all of it.
    `bound` says what leads the search: "taylor" (expansions; needs a smooth model and a reward without upward kinks),
    "lipschitz" (the paper's anchors; needs finite constants) or "none" (enumerates); "auto" takes what suits.
    """

    batch: int = 2048
    alternatives: int = 1
    within: float = 0.0
    bound: BoundName = "auto"

    name: ClassVar[str] = "branch-and-bound"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("batch", "alternatives"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"branch and bound: {name}={value!r} must be a whole number of at least 1.")
        if not 0 <= self.within < math.inf:
            raise InputError(f"branch and bound: within={self.within} must be zero or positive (units of the outcome).")
        if self.bound not in get_args(BoundName):
            raise InputError(f"branch and bound: bound {self.bound!r}; choose from {list(get_args(BoundName))}.")

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Search until every budget is proven; a limit or Ctrl-C leaves a valid bracket."""
        return TreeSearch(self, [problem], monitor).run()[0]


class _Stop(Exception):  # noqa: N818 - not an error: carries a limit out of nested loops
    def __init__(self, status: Status) -> None:
        self.status = status


class TreeSearch:
    """One run over P problems (or panels) that share models, reward, horizon and budget.

    No problem's answer depends on the others: each has its own incumbents, thresholds and order of candidates.
    """

    def __init__(
        self,
        settings: BranchAndBound,
        problems: Sequence[BaseProblem],
        monitor: Monitor,
        *,
        bound: ChildBound | None = None,
        bounded: Sequence[BaseProblem] | None = None,
        known: Tensor | None = None,
    ) -> None:
        """`bound` is made of `bounded`, the same problems, perhaps under fewer rules; `known` [n, T] are sequences."""
        self.settings = settings
        self.monitor = monitor
        self.bound, self._bounded = bound, bounded or problems
        questions = self.questions = ProblemBatch(problems)
        self._known = known
        self._budget = questions.budget
        self._incumbents = Incumbents(questions)
        wants_more = settings.alternatives > 1 or settings.within > 0
        self._ranking = (
            Ranking(questions, alternatives=settings.alternatives, within=settings.within) if wants_more else None
        )
        memory = MEMORY if monitor.limits.memory is None else monitor.limits.memory
        self._open = OpenList(questions.count, memory=memory * 2**20)
        shape = (questions.count, self._budget + 1)
        self._slack = questions.tolerance.clamp(min=monitor.limits.gap).unsqueeze(1)  # [P, 1]
        self._let_go = torch.full(shape, -torch.inf, dtype=torch.float64, device=questions.device)
        """Bounds [P, K+1] on what a gap or a node limit left unexplored."""
        self._root_bounds = torch.full_like(self._let_go, torch.inf)
        self._is_impossible = self._budgets_without_answer()
        self._in_flight: Candidates | None = None
        self._paths: KnownPaths | None = None
        self._stopped_by_nodes = torch.zeros(questions.count, dtype=torch.bool, device=questions.device)
        self._thresholds = self._let_go
        self.expanded = torch.zeros(questions.count, dtype=torch.int64, device=questions.device)  # [P]
        self.generated = torch.zeros_like(self.expanded)
        self.model_steps = torch.zeros_like(self.expanded)
        self._reason: Status | None = None
        self._last_report = -math.inf

    def run(self) -> list[Solution]:
        """Search; what is known when it ends, one finding per problem."""
        self._offer_known()
        try:
            self._search()
        except _Stop as stop:
            self._reason = stop.status
        except KeyboardInterrupt:
            self._reason = Status.INTERRUPTED
        self._add_up()
        return finalize(self._knowledge())

    def stats(self, number: int, seconds_bounds: float) -> Stats:
        """One problem's share of the work."""
        return Stats(
            nodes_expanded=int(self.expanded[number]),
            nodes_generated=int(self.generated[number]),
            model_steps=int(self.model_steps[number]),
            seconds_bounds=seconds_bounds,
        )

    def _search(self) -> None:
        self._check_limits()
        if self._budget == 0:
            self._root_bounds = self._let_go
            return
        paths = self._paths = KnownPaths(self.questions)
        self.model_steps += paths.steps_taken
        for starts in greedy_starts(self.questions, paths):
            self._count(self.model_steps, starts.problem, starts.model_steps)
            self._consider(starts.problem, starts.sequences, starts.outcomes, ranked=False)
            self._check_limits()
        if self.bound is None:
            started = time.perf_counter()
            self.bound = make_child_bound(self._bounded, self.settings.bound, check=self._check_limits)
            self.monitor.stats.seconds_bounds += time.perf_counter() - started
        self._expand_root(self.bound, paths)
        while len(self._open):
            self._round()

    def _budgets_without_answer(self) -> Tensor:
        """Budgets [P, K+1] that are too small for the changes that rules require."""
        questions = self.questions
        needed = torch.stack([problem.changes(problem.nearest_actions) for problem in questions.problems])
        return torch.arange(self._budget + 1, device=questions.device) < needed.unsqueeze(1)

    def _offer_known(self) -> None:
        """Something to return at once: the observed sequences, or the nearest admissible ones, and what is known."""
        questions = self.questions
        nearest = torch.stack([problem.nearest_actions for problem in questions.problems])
        self._offer_sequences(torch.arange(questions.count, device=questions.device), nearest, ranked=True)
        if self._known is not None:
            first = torch.zeros(len(self._known), dtype=torch.int64, device=questions.device)
            fine = questions.obey_rules(first, self._known)
            # Under these rules a known sequence may end with an idle change: it is no alternative to itself without it.
            self._offer_sequences(first[fine], self._known[fine], ranked=False)

    def _offer_sequences(self, problem: Tensor, sequences: Tensor, *, ranked: bool) -> None:
        """Roll out whole sequences [N, T] that obey the rules, and consider those that are supported."""
        paths = self.questions.rollout(problem, sequences)
        fine = self.questions.have_support(problem, sequences, paths)
        self._count(self.model_steps, problem, self.questions.horizon - 1)
        self._consider(problem[fine], sequences[fine], paths.outcomes[fine], ranked=ranked)

    def _consider(self, problem: Tensor, sequences: Tensor, outcomes: Tensor, *, ranked: bool) -> None:
        changes = self.questions.changes(problem, sequences)
        self._offer(problem, changes, outcomes, sequences.to(torch.int16).__getitem__, ranked=ranked)

    def _expand_root(self, bound: ChildBound, paths: KnownPaths) -> None:
        questions = self.questions
        problem = torch.arange(questions.count, device=questions.device)
        root = Rolled(
            level=0,
            problem=problem,
            step=torch.full_like(problem, -1),
            action=torch.zeros_like(problem),
            sequences=questions.observed.to(torch.int16),
            limits=self._root_bounds,
            paths=paths.observed,
        )
        self._count(self.expanded, problem, 1)
        bounds = unknown_as_infinite(bound.root())
        self._root_bounds = torch.cat([self._let_go[:, :1], bounds.flatten(2).amax(2)], dim=1)
        self._branch(root, bounds)
        self._root_bounds = torch.full_like(self._let_go, -torch.inf)

    def _round(self) -> None:
        """Expand the best candidates of every problem."""
        self._check_limits()
        whole = self._open.all()
        if whole is None:
            return
        chosen = self._open.next(self._may_expand())
        self._in_flight = whole.select(chosen)
        self._open.keep(~chosen)
        for depth in range(self._budget - 1, 0, -1):
            group = self._in_flight.select(self._in_flight.level == depth)
            if len(group):
                self._expand(depth, group)
        self._in_flight = None

    def _may_expand(self) -> Tensor:
        """How many nodes each problem may still expand now [P]."""
        most = torch.full_like(self.expanded, self.settings.batch)
        limit = self.monitor.limits.nodes
        return most if limit is None else torch.minimum(most, limit - self.expanded)

    def _expand(self, level: int, candidates: Candidates) -> None:
        """Roll candidates of one level out, offer them, and bound their children."""
        assert self.bound is not None
        assert self._paths is not None
        questions = self.questions
        width = questions.horizon * questions.action_count * (self._budget - level) * questions.members
        size = max(1, min(questions.rows, ELEMENTS * questions.rows // ROWS // width))
        for rows in torch.arange(len(candidates), device=questions.device).split(size):
            self._check_seconds()
            part = candidates.select(rows)
            alive = self._alive(part.problem, part.bounds, 0)
            self._release(part.problem[~alive], part.bounds[~alive], 0)
            part = part.select(alive)
            if not len(part):
                continue
            paths, steps = self._paths.replay(part.problem, part.sequences.to(torch.int64))
            self._count(self.expanded, part.problem, 1)
            self._count(self.model_steps, part.problem, steps)
            nodes = Rolled(level, part.problem, part.step, part.action, part.sequences, part.bounds, paths)
            answers = questions.are_answers(part.problem, part.step, part.action).nonzero().squeeze(-1)
            sequences = part.sequences[answers]
            self._offer(part.problem[answers], part.level[answers], paths.outcomes[answers], sequences.__getitem__)
            bounds = self.bound.children(
                Nodes(level, part.problem, part.step + 1, states=paths.states, outcomes=paths.totals)
            )
            self._branch(nodes, bounds)

    def _branch(self, nodes: Rolled, bounds: Tensor) -> None:
        """Keep the children [N, T, A] that may still matter: complete ones are tried at once, others queued."""
        questions, level = self.questions, nodes.level + 1
        options = self._options(nodes)
        bounds = torch.minimum(unknown_as_infinite(bounds), nodes.limits[:, level:, None, None])
        if questions.is_restricted:
            needed = level + questions.changes_to_go[nodes.problem]
            budgets = torch.arange(level, self._budget + 1, device=questions.device)[:, None, None]
            bounds = bounds.masked_fill(needed.unsqueeze(1) > budgets, -torch.inf)
        alive = self._alive(nodes.problem, bounds, level) & options
        if self.monitor.limits.gap > 0:
            self._release(nodes.problem, bounds.masked_fill((alive | ~options).unsqueeze(1), -torch.inf), level)
        rows, step, action = alive.nonzero(as_tuple=True)
        places = rows, step, action
        chosen = bounds.permute(0, 2, 3, 1)[places]  # [n, budgets]
        if level == self._budget:
            self._count(self.generated, nodes.problem[rows], 1)
            self._complete(nodes, places, chosen[:, 0])
            return
        (rows, step, action), chosen = self._look_ahead(nodes, places, chosen)
        self._count(self.generated, nodes.problem[rows], 1)
        padded = torch.full((len(rows), self._budget + 1), -torch.inf, dtype=torch.float64, device=rows.device)
        padded[:, level:] = chosen
        self._open.add(
            Candidates(
                problem=nodes.problem[rows],
                step=step,
                action=action,
                level=torch.full_like(rows, level),
                sequences=changed(nodes.sequences[rows], step, action),
                bounds=padded,
            )
        )

    def _look_ahead(self, nodes: Rolled, places: Places, bounds: Tensor) -> tuple[Places, Tensor]:
        """The children that may still matter one step after their change, and their bounds [n, budgets] there."""
        assert self.bound is not None
        rows, step, action = places
        if not self.bound.has_reward_to_go or not len(rows):
            return places, bounds
        level, problem = nodes.level + 1, nodes.problem[rows]
        self._count(self.model_steps, problem, (step < self.questions.horizon - 1).long())
        needed = (self._thresholds + self._slack)[problem, level:]
        sharp = sharpened(self.questions, self.bound, nodes.leave(rows, step), action, bounds, needed)
        alive = self._alive(problem, sharp, level)
        self._release(problem[~alive], sharp[~alive], level)
        return (rows[alive], step[alive], action[alive]), sharp[alive]

    def _options(self, nodes: Rolled) -> Tensor:
        """The changes [N, T, A] that may come next: rules permit them, support holds, and the last is not idle."""
        questions = self.questions
        options = questions.further_changes(nodes.problem, nodes.step, nodes.action)
        # Where the observed action may stay, another one with the same reward is pointless at the last step.
        idle = questions.idle_last_changes(nodes.problem, nodes.paths.states[:, -1])
        options[:, -1] &= ~(idle & questions.are_answers(nodes.problem, nodes.step, nodes.action).unsqueeze(1))
        return options & questions.supported_changes(nodes.problem, nodes.paths.states, options.any(2))

    def _complete(self, nodes: Rolled, places: Places, bounds: Tensor) -> None:
        """Try children that spend the budget, the most promising of each problem first."""
        rows, step, action = places
        problem = nodes.problem[rows]
        group = (ranks_within(problem, bounds) / FIRST_LEAVES + 1).log2().long()
        group[bounds == torch.inf] = 0  # nothing is known about any of them
        for number in range(int(group.max()) + 1 if len(group) else 0):
            mine = (group == number).nonzero().squeeze(-1)
            hopeful = bounds[mine] > (self._thresholds[:, -1:] + self._slack)[problem[mine], 0]
            self._let_go_of_leaves(problem[mine[~hopeful]], bounds[mine[~hopeful]])
            for part in mine[hopeful].split(self.questions.rows):
                self._check_seconds()
                self._try(nodes, (rows[part], step[part], action[part]))

    def _try(self, nodes: Rolled, places: Places) -> None:
        rows, step, action = places
        fine = self.questions.are_answers(nodes.problem[rows], step, action)
        rows, step, action = rows[fine], step[fine], action[fine]
        problem, sequences = nodes.problem[rows], changed(nodes.sequences[rows], step, action)
        branches = replace(nodes.leave(rows, step), sequences=sequences)
        assert self.bound is not None
        followed = follow(self.questions, self.bound, branches, (self._thresholds[:, -1:] + self._slack)[problem, 0])
        self._count(self.model_steps, problem, followed.steps)
        self._let_go_of_leaves(problem, followed.bounds)
        done = (followed.bounds == -torch.inf).nonzero().squeeze(-1)
        level, sequences = torch.full_like(done, self._budget), sequences[done]
        self._offer(problem[done], level, followed.outcomes[done], sequences.__getitem__)

    def _offer(
        self,
        problem: Tensor,
        level: Tensor,
        outcomes: Tensor,
        sequences: Callable[[Tensor], Tensor],
        *,
        ranked: bool = True,
    ) -> None:
        """Consider admissible sequences (unless `ranked`: not as alternatives); drop what a raised threshold prunes."""
        if not len(problem):
            return
        if not (outcomes < torch.inf).all():
            wrong = problem[~(outcomes < torch.inf)][0]
            self.questions.problems[int(wrong)].require_finite(outcomes[~(outcomes < torch.inf)])
        self._incumbents.offer(problem, level, outcomes, sequences)
        if self._ranking is not None and ranked:
            self._ranking.offer(problem, outcomes, sequences)
        thresholds = self._incumbents.by_budget()
        if self._ranking is not None:
            thresholds[:, -1] = self._ranking.thresholds()
        raised = not torch.equal(thresholds, self._thresholds)
        self._thresholds = thresholds
        whole = self._open.all() if raised else None
        if whole is not None:
            alive = self._alive(whole.problem, whole.bounds, 0)
            self._release(whole.problem[~alive], whole.bounds[~alive], 0)
            self._open.keep(alive)

    def _alive(self, problem: Tensor, bounds: Tensor, level: int) -> Tensor:
        """Whether, for some budget from `level` on, bounds [N, budgets, ...] leave hope for more than is known."""
        needed = (self._thresholds + self._slack)[problem, level:]
        return (bounds > needed.view(*needed.shape, *[1] * (bounds.dim() - 2))).any(1)

    def _release(self, problem: Tensor, bounds: Tensor, level: int) -> None:
        """Remember what was pruned for the sake of a gap: bounds [N, budgets, ...]."""
        if self.monitor.limits.gap > 0 and bounds.numel():
            highest = bounds.flatten(2).amax(2) if bounds.dim() > 2 else bounds
            index = problem.unsqueeze(1).expand(-1, highest.shape[1])
            released = self._let_go[:, level:].scatter_reduce(0, index, highest, "amax")
            self._let_go = torch.cat([self._let_go[:, :level], released], dim=1)

    def _let_go_of_leaves(self, problem: Tensor, bounds: Tensor) -> None:
        self._release(problem, bounds.unsqueeze(1), self._budget)

    def _count(self, counter: Tensor, problem: Tensor, amount: int | Tensor) -> None:
        counter.index_add_(0, problem, torch.as_tensor(amount, device=counter.device).expand(len(problem)))

    def _check_limits(self) -> None:
        """Report now and then; stop all at a time limit, and each problem at its node limit."""
        self._check_seconds()
        limit = self.monitor.limits.nodes
        if limit is None:
            return
        if limit == 0:
            raise _Stop(Status.NODE_LIMIT)
        spent, whole = self.expanded >= limit, self._open.all()
        if whole is not None and spent[whole.problem].any():
            mine = spent[whole.problem]
            self._stopped_by_nodes[whole.problem[mine]] = True
            index = whole.problem[mine].unsqueeze(1).expand(-1, self._budget + 1)
            self._let_go = self._let_go.scatter_reduce(0, index, whole.bounds[mine], "amax")
            self._open.keep(~mine)

    def _add_up(self) -> None:
        stats = self.monitor.stats
        stats.nodes_expanded, stats.nodes_generated = int(self.expanded.sum()), int(self.generated.sum())
        stats.model_steps = int(self.model_steps.sum())

    def _check_seconds(self) -> None:
        now = time.perf_counter()
        if now - self._last_report > REPORT_SECONDS:
            self._last_report = now
            self._add_up()
            best, upper = self._incumbents.by_budget()[:, -1], self._upper_bounds()[:, -1]
            # Of several problems, the one that is farthest from its proof.
            worst = int((upper - best).nan_to_num(0.0).argmax())
            self.monitor.report(float(best[worst]), float(upper[worst]), open=len(self._open))
        limit = self.monitor.limits.seconds
        if limit is not None and self.monitor.elapsed() >= limit:
            raise _Stop(Status.TIME_LIMIT)

    def _upper_bounds(self) -> Tensor:
        """Proven upper bounds [P, K+1] for every budget, at any moment."""
        upper = torch.stack([self._incumbents.by_budget(), self._let_go, self._root_bounds]).amax(0)
        for part in (self._open.all(), self._in_flight):
            if part is not None:
                index = part.problem.unsqueeze(1).expand(-1, self._budget + 1)
                upper = upper.scatter_reduce(0, index, part.bounds, "amax")
        upper = upper.masked_fill(self._is_impossible, -torch.inf)
        # Fewer changes can do no more than more can.
        return upper.flip(1).cummin(1).values.flip(1)

    def _knowledge(self) -> Knowledge:
        nothing_open = torch.zeros_like(self.expanded)
        return Knowledge(
            questions=self.questions,
            incumbents=self._incumbents,
            ranking=self._ranking,
            upper_bounds=self._upper_bounds(),
            open_counts=nothing_open if self._open.all() is None else self._open.counts(),
            stopped=self._reason,
            stopped_by_nodes=self._stopped_by_nodes,
            depth_first=self._open.depth_first,
            bound=self.bound,
            gap=self.monitor.limits.gap,
        )

"""Contracts that any model, bound or solver must satisfy - ours or a user's.

Each `check_...` returns nothing when all is well and raises `VerificationError` with the first thing that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.automaton import BROKEN
from ifonly.bounds.base import ChildBound, Nodes, UpperBound
from ifonly.errors import VerificationError
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, Problem
from ifonly.query import Limits
from ifonly.result import Result, Status
from ifonly.search.base import Solver
from ifonly.search.exhaustive import Exhaustive, best_values
from ifonly.search.heuristics import random_sequences
from ifonly.search.solve import solve

_ROUNDING = 1e-9  # relative differences up to this size, in float64, are rounding


def check_transition_model(
    model: TransitionModel, *, samples: int = 64, spread: float = 1.0, noise_spread: float = 1.0, seed: int = 0
) -> None:
    """Test what every model promises, at `samples` random transitions.

    `abduct` inverts `step` and `step` inverts `abduct`; inputs broadcast and rows do not influence each other; a model
    that calls itself element-wise is; no slope found - between states near and far, or of the Jacobian - exceeds
    `lipschitz`; `log_prob` is what automatic differentiation of `abduct` gives; samples have the prior's covariance;
    the copy that searches use is the same function and has the same fingerprint; `smooth` has the Jacobian of `step`.

    States are drawn with deviation `spread` and four times that, in scaled coordinates; noise with up to four times
    `noise_spread`. A model that lives in a part of the space only needs smaller ones. Checks run in float64, on the
    `for_search` copy.
    """
    frozen = model.for_search()
    batch = _Batch.draw(frozen, samples, (spread, noise_spread), torch.Generator().manual_seed(seed))
    _check_shapes(frozen, batch)
    _check_rows_are_independent(frozen, batch)
    _check_round_trip(frozen, batch)
    _check_broadcasting(frozen, batch)
    if frozen.elementwise:
        _check_elementwise(frozen, batch)
    _check_lipschitz(frozen, batch)
    if isinstance(frozen, TrainableModel):
        _check_log_prob(frozen, batch)
        _check_samples(frozen, batch, seed)
    _check_search_copy(model, frozen, batch)
    _check_smooth(frozen, batch)


@torch.no_grad()
def check_bound(bound: UpperBound, problem: Problem, *, samples: int = 64, seed: int = 0) -> None:
    """Test that a bound of one (small) problem is nowhere below the truth.

    At every step, `samples` states - those of random sequences, and others around them - with every number of changes
    used are compared with the exact value, found by enumeration.
    """
    generator = torch.Generator().manual_seed(seed)
    path, _ = problem.rollout(random_sequences(problem, samples, generator=generator))
    for t in range(problem.horizon):
        noise = torch.randn(path[:, t].shape, generator=generator, dtype=torch.float64).to(problem.device)
        states = torch.cat([path[:, t], path[:, t] + 0.3 * noise])
        for used in range(problem.max_changes + 1):
            changes = torch.full((len(states),), used, device=problem.device)
            values, bounds = best_values(problem, t, states, changes), bound(t, states, changes)
            if bounds.shape != values.shape or bounds.isnan().any():
                _fail(f"at step {t} the bound gives {list(bounds.shape)} values, or NaN, for {len(states)} states")
            excess = (values - bounds - 1e-11 * values.abs() - problem.tolerance).max()
            if excess > 0:
                _fail(f"at step {t} with {used} changes used the bound is below the truth by {float(excess):.3g}")


@torch.no_grad()
def check_child_bound(bound: ChildBound, problems: Sequence[BaseProblem], *, samples: int = 16, seed: int = 0) -> None:
    """Test that a bound on children, made for these (small) problems or ensemble problems, is nowhere below the truth.

    The root, and on every level up to `samples` nodes per problem with random changes: every further change with every
    number of changes left is compared with the exact value, found by enumeration. Where there is nothing to change the
    bound must be minus infinity. A bound on the reward to go must hold too, whatever the cutoff.
    """
    generator = torch.Generator().manual_seed(seed)
    observed = [problem.observed_actions.unsqueeze(0) for problem in problems]
    _compare_children(0, bound.root(), problems, observed)
    for level in range(1, problems[0].max_changes):
        drawn = [_random_nodes(problem, level, samples, generator) for problem in problems]
        paths = [problem.replay(rows) for problem, rows in zip(problems, drawn, strict=True)]
        sizes = torch.tensor([len(rows) for rows in drawn])
        nodes = Nodes(
            level=level,
            problem=torch.arange(len(problems)).repeat_interleave(sizes).to(problems[0].device),
            start=torch.cat([_start(problem, rows) for problem, rows in zip(problems, drawn, strict=True)]),
            states=torch.cat([states for states, _ in paths]),
            outcomes=torch.cat([totals for _, totals in paths]),
        )
        if len(nodes.problem):
            _compare_children(level, bound.children(nodes), problems, drawn)
    if bound.has_reward_to_go:
        levels = range(problems[0].max_changes + 1)
        few = -(-samples // len(levels))
        drawn = [torch.cat([_random_nodes(one, level, few, generator) for level in levels]) for one in problems]
        for t in range(problems[0].horizon):
            _compare_reward_to_go(t, bound, problems, drawn)


def check_solver(solver: Solver, problems: Iterable[BaseProblem]) -> None:
    """Test a solver against exhaustive enumeration on (small) problems or ensemble problems.

    Its sequence must be admissible, not worse than the observed one, and inside a true bracket, also when it is
    stopped at once; an exact solver must find the optimum and say so, and the others must not say so.
    """
    for number, problem in enumerate(problems):
        where = f"problem {number} ({problem.episode.id!r})"
        optimum = solve(problem, Exhaustive()).outcome
        result = solve(problem, solver)
        _check_bracket(f"{where}", result, problem, optimum)
        tolerance = 10 * problem.tolerance
        if solver.exact and result.status is not Status.OPTIMAL:
            _fail(f"{where}: an exact solver without limits ended with status {result.status.value!r}")
        if result.status is Status.OPTIMAL and not (result.certificate.proven and result.gap <= tolerance):
            _fail(f"{where}: called optimal without proof (gap {result.gap:.3g})")
        if result.status is Status.OPTIMAL and abs(result.outcome - optimum) > tolerance:
            _fail(f"{where}: outcome {result.outcome:.12g} is called optimal; the optimum is {optimum:.12g}")
        _check_bracket(f"{where}, stopped at once", solve(problem, solver, limits=Limits(nodes=1)), problem, optimum)


def _changeable(problem: BaseProblem) -> Tensor:
    """Where there is something to change [T, A]."""
    return problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)


def _start(problem: BaseProblem, sequences: Tensor) -> Tensor:
    """The step after the last change of each sequence [N]; 0 where nothing is changed."""
    steps = torch.arange(1, problem.horizon + 1, device=problem.device)
    return torch.where(sequences != problem.observed_actions, steps, 0).amax(1)


def _random_nodes(problem: BaseProblem, level: int, count: int, generator: torch.Generator) -> Tensor:
    """Distinct sequences [N, T] with `level` allowed changes, whatever other rules there are; at most `count`."""
    options = _changeable(problem).cpu()
    steps = options.any(1).nonzero().squeeze(-1)
    if len(steps) < level:
        return problem.observed_actions.new_empty(0, problem.horizon)
    sequences = problem.observed_actions.cpu().repeat(count, 1)
    for row in sequences:
        chosen = steps[torch.randperm(len(steps), generator=generator)[:level]]
        row[chosen] = torch.multinomial(options[chosen].to(torch.float64), 1, generator=generator).squeeze(1)
    distinct: Tensor = sequences.unique(dim=0)
    return distinct.to(problem.device)


def _compare_children(level: int, bounds: Tensor, problems: Sequence[BaseProblem], nodes: Sequence[Tensor]) -> None:
    """Compare `bounds` [N, K - level, T, A] with the truth about `nodes`: sequences [n, T], problem by problem."""
    where = f"after {level} changes"
    first, count = problems[0], sum(len(rows) for rows in nodes)
    shape = (count, first.max_changes - level, first.horizon, first.action_count)
    if bounds.shape != shape or bounds.isnan().any():
        _fail(f"{where} the bound on children has shape {list(bounds.shape)}, expected {list(shape)}, or NaN")
    for problem, rows, found in zip(problems, nodes, bounds.split([len(rows) for rows in nodes]), strict=True):
        steps = torch.arange(problem.horizon, device=problem.device)
        late = (steps >= _start(problem, rows).unsqueeze(1)).unsqueeze(-1)
        idle = ~(_changeable(problem) & late).unsqueeze(1).expand_as(found)
        if (found[idle] != -torch.inf).any():
            _fail(f"{where} the bound is not minus infinity where nothing may be changed")
        for t in range(problem.horizon):
            truth = _best_after_change(problem, rows, t, found.shape[1]).masked_fill(idle[:, :, t], -torch.inf)
            excess = (truth - found[:, :, t]).nan_to_num(0.0) - 1e-11 * truth.abs().nan_to_num(0.0, 0.0)
            if (excess > problem.tolerance).any():
                _fail(f"{where} the bound on changes of step {t} is below the truth by {float(excess.max()):.3g}")


def _compare_reward_to_go(t: int, bound: ChildBound, problems: Sequence[BaseProblem], drawn: Sequence[Tensor]) -> None:
    """Compare what `bound` says from step t on with the truth, at states to which sequences [n, T] lead there."""
    parts = [problem.replay(rows)[0][:, t].unique(dim=0) for problem, rows in zip(problems, drawn, strict=True)]
    sizes = torch.tensor([len(part) for part in parts], device=problems[0].device)
    which, states = torch.arange(len(parts), device=sizes.device).repeat_interleave(sizes), torch.cat(parts)
    truth = torch.cat([_best_reward_to_go(problem, t, part) for problem, part in zip(problems, parts, strict=True)])
    tolerance = max(problem.tolerance for problem in problems)
    about = problems[0].counted(truth).nan_to_num(0.0, 0.0, 0.0)
    cutoffs = torch.stack([about - torch.inf, about + torch.inf, about, 1.1 * about + 0.1, 0.9 * about - 0.1])
    for further in sorted({0, min(1, problems[0].max_changes), problems[0].max_changes}):
        wanted = truth[:, : further + 1]
        wants = cutoffs[..., : further + 1].flatten(0, 1)
        whatever = bound.reward_to_go(t, which.repeat(len(cutoffs)), torch.cat([states] * len(cutoffs)), further, wants)
        for bounds in (bound.reward_to_go(t, which, states, further), *whatever.chunk(len(cutoffs))):
            if bounds.shape != wanted.shape or bounds.isnan().any():
                shapes = f"{list(bounds.shape)}, expected {list(wanted.shape)}"
                _fail(f"the reward to go from step {t} has shape {shapes}, or NaN")
            excess = (wanted - bounds).nan_to_num(0.0) - 1e-11 * wanted.abs().nan_to_num(0.0, 0.0)
            if (excess > tolerance).any():
                _fail(f"the bound on the reward to go from step {t} is below the truth by {float(excess.max()):.3g}")


def _best_reward_to_go(problem: BaseProblem, t: int, states: Tensor) -> Tensor:
    """The most [N, K + 1, (M,)] that 0, 1, ... changes from step t on earn from `states`, member by member."""
    if isinstance(problem, EnsembleProblem):
        alone = [_best_reward_to_go(member, t, states[:, number]) for number, member in enumerate(problem.members)]
        return torch.stack(alone, dim=-1)
    used = [torch.full((len(states),), number, device=problem.device) for number in range(problem.max_changes + 1)]
    return torch.stack([best_values(problem, t, states, changes) for changes in reversed(used)], dim=1)


def _best_after_change(problem: BaseProblem, nodes: Tensor, t: int, most: int) -> Tensor:
    """The best outcome [n, most, A] of `nodes` [n, T], up to step t, with a change there and 0, 1, ... further ones.

    Minus infinity where no such sequence is admissible.
    """
    every = torch.arange(problem.action_count, device=problem.device)
    batch, rows = problem.as_batch, torch.zeros(len(nodes), 1, dtype=torch.int64, device=problem.device)
    before = batch.positions(rows[:, 0], nodes)[:, t : t + 1]
    fine = batch.next_positions(t, rows, before, every) > BROKEN  # [n, A]
    states, _ = problem.rollout(nodes)
    earned = sum(
        (problem.rewards(s, states[:, s], nodes[:, s]) for s in range(t)), torch.zeros_like(states[:, 0, ..., 0])
    )
    earned = earned.unsqueeze(1) + problem.rewards_all(t, states[:, t])  # [n, A], or [n, A, M] of an ensemble problem
    values = problem.counted(earned).unsqueeze(1).repeat(1, most, 1)
    if t < problem.horizon - 1:
        following = problem.step(t, states[:, t].unsqueeze(1), every).flatten(0, 1)
        taken = every.repeat(len(nodes))
        for left in range(most):
            used = torch.full_like(taken, problem.max_changes - left)
            earlier = torch.cat([nodes[:, :t].repeat_interleave(len(every), 0), taken.unsqueeze(1)], dim=1)
            reached = best_values(problem, t + 1, following, used, actions=earlier, earned=earned.flatten(0, 1))
            values[:, left] = reached.view(len(nodes), len(every))
    return values.masked_fill(~fine.unsqueeze(1), -torch.inf)


def _check_bracket(where: str, result: Result, problem: BaseProblem, optimum: float) -> None:
    tolerance = 10 * problem.tolerance
    actions = torch.tensor(result.actions, device=problem.device)
    if int(problem.changes(actions)) > problem.max_changes:
        _fail(f"{where}: the sequence has more than {problem.max_changes} changes")
    if not problem.admissible(actions.unsqueeze(0)).all():
        _fail(f"{where}: the sequence takes an action that is not allowed there, or not after the one before")
    observed_counts = not problem.must_change.any()
    least = result.observed_outcome - tolerance if observed_counts else -torch.inf
    if not least <= result.outcome <= optimum + tolerance:
        _fail(f"{where}: outcome {result.outcome:.12g} is worse than the observed one, or better than the optimum")
    if not result.upper_bound >= optimum - tolerance:
        _fail(f"{where}: upper bound {result.upper_bound:.12g} is below the optimum {optimum:.12g}")


@dataclass(frozen=True)
class _Batch:
    """Random transitions, row by row, in scaled coordinates."""

    states: Tensor  # [N, D]
    context: Tensor  # [N, C]
    actions: Tensor  # [N]
    noise: Tensor  # [N, D]

    @classmethod
    def draw(
        cls, model: TransitionModel, samples: int, spreads: tuple[float, float], generator: torch.Generator
    ) -> _Batch:
        def normal(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64)

        wide = torch.where(torch.arange(samples) % 4 == 0, 4.0, 1.0).unsqueeze(1)
        loud = torch.tensor([0.1, 1.0, 2.0, 4.0])[torch.arange(samples) % 4].unsqueeze(1)
        return cls(
            states=normal(samples, model.state_size) * spreads[0] * wide,
            context=normal(samples, model.context_size),
            actions=torch.randint(model.action_count, (samples,), generator=generator),
            noise=normal(samples, model.state_size) * spreads[1] * loud,
        )

    def step(self, model: TransitionModel) -> Tensor:
        return model.step(self.states, self.context, self.actions, self.noise)


def _check_shapes(model: TransitionModel, batch: _Batch) -> None:
    following = batch.step(model)
    noise = model.abduct(batch.states, batch.context, batch.actions, following)
    constants = model.lipschitz(batch.context, batch.actions, batch.noise)
    for name, found, wanted in (
        ("step", following, batch.states.shape),
        ("abduct", noise, batch.states.shape),
        ("lipschitz", constants, batch.actions.shape),
    ):
        if found.shape != wanted:
            _fail(f"{name} returns shape {list(found.shape)} for a batch of rows; expected {list(wanted)}")
        if found.dtype != torch.float64:
            _fail(f"{name} of the for_search copy returns {found.dtype}; expected torch.float64")
        if not torch.isfinite(found).all():
            _fail(f"{name} returns values that are not finite")


def _check_rows_are_independent(model: TransitionModel, batch: _Batch) -> None:
    other = _Batch(batch.states.clone(), batch.context.clone(), batch.actions.clone(), batch.noise.clone())
    other.states[0] += 10.0
    other.noise[0] -= 10.0
    before, after = batch.step(model)[1:], other.step(model)[1:]
    _compare("step: a change in row 0 changes other rows", after, before, 1e-12 * (1 + before.abs()))


def _check_round_trip(model: TransitionModel, batch: _Batch) -> None:
    following = batch.step(model)
    noise = model.abduct(batch.states, batch.context, batch.actions, following)
    again = model.step(batch.states, batch.context, batch.actions, noise)
    _compare("step(abduct(next)) gives another next state", again, following, _ROUNDING * (1 + following.abs()))
    # Where the next state hardly depends on the noise, rounding of the one is a large change of the other.
    slopes = _jacobians(lambda u: model.step(batch.states, batch.context, batch.actions, u), batch.noise)
    smallest = torch.linalg.svdvals(slopes)[:, -1:]
    blur = 1e-14 * (1 + following.abs().amax(-1, keepdim=True) + batch.states.abs().amax(-1, keepdim=True)) / smallest
    _compare("abduct(step(noise)) gives another noise", noise, batch.noise, _ROUNDING * (1 + batch.noise.abs()) + blur)


def _check_broadcasting(model: TransitionModel, batch: _Batch) -> None:
    """States [N, 1, D] with one context and one noise under all actions [A], as searches call it."""
    states, context, noise = batch.states[:5].unsqueeze(1), batch.context[0], batch.noise[0]
    actions = torch.arange(model.action_count)
    rows = [(state, context, action, noise) for state in batch.states[: len(states)] for action in actions]
    for name, function in (("step", model.step), ("abduct", model.abduct)):
        whole = function(states, context, actions, noise)
        single = torch.stack([function(*row) for row in rows]).reshape(len(states), len(actions), -1)
        if whole.shape != single.shape:
            _fail(f"{name} does not broadcast: shape {list(whole.shape)}, expected {list(single.shape)}")
        _compare(f"{name} of a broadcast batch differs from row by row", whole, single, _ROUNDING * (1 + single.abs()))
    constants = model.lipschitz(context, actions, noise)
    one_by_one = torch.stack([model.lipschitz(context, action, noise) for action in actions])
    if constants.shape != one_by_one.shape:
        _fail(f"lipschitz does not broadcast: shape {list(constants.shape)}, expected {list(one_by_one.shape)}")
    _compare("lipschitz over all actions differs from one by one", constants, one_by_one, _ROUNDING * one_by_one.abs())


def _check_elementwise(model: TransitionModel, batch: _Batch) -> None:
    slopes = _jacobians(lambda u: model.step(batch.states, batch.context, batch.actions, u), batch.noise)
    diagonal = slopes.diagonal(dim1=-2, dim2=-1)
    if (slopes - torch.diag_embed(diagonal)).abs().max() > 0:
        _fail("elementwise is true, yet feature i of the next state depends on another noise than i")
    signs = diagonal.sign()
    if (signs == 0).any() or (signs != signs[:1]).any():
        _fail("elementwise is true, yet step is not strictly monotone in the noise, always in the same direction")


def _check_lipschitz(model: TransitionModel, batch: _Batch) -> None:
    constants = model.lipschitz(batch.context, batch.actions, batch.noise)
    if (constants < 0).any():
        _fail(f"lipschitz returns a negative constant, {float(constants.min()):.6g}")
    allowed = constants * (1 + _ROUNDING)
    jacobians = _jacobians(lambda x: model.step(x, batch.context, batch.actions, batch.noise), batch.states)
    _compare_slopes("the Jacobian's norm", torch.linalg.matrix_norm(jacobians, ord=2), allowed)
    # The direction in which each step stretches most, and random ones.
    steepest = torch.linalg.svd(jacobians)[2][:, 0]
    random = torch.randn(batch.states.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    here = batch.step(model)
    for direction in (steepest, torch.nn.functional.normalize(random, dim=-1)):
        for distance in (1e-4, 1e-2, 1.0, 10.0):
            shifted = batch.states + distance * direction
            moved = model.step(shifted, batch.context, batch.actions, batch.noise) - here
            slopes = moved.norm(dim=-1) / (shifted - batch.states).norm(dim=-1)
            blur = 1e-14 * (1 + here.norm(dim=-1)) / distance
            _compare_slopes(f"a slope between states {distance:g} apart", slopes, allowed + blur)


def _check_smooth(model: TransitionModel, batch: _Batch) -> None:
    smooth = model.smooth()
    if smooth is not None:
        wanted = _jacobians(lambda x: model.step(x, batch.context, batch.actions, batch.noise), batch.states)
        found = smooth.jacobians(batch.states, batch.context, batch.actions, batch.noise)
        _compare("smooth() differs from automatic differentiation of step", found, wanted, 1e-9 * (1 + wanted.abs()))


def _check_log_prob(model: TrainableModel, batch: _Batch) -> None:
    following = batch.step(model)
    found = model.log_prob(batch.states, batch.context, batch.actions, following)
    if found.shape != batch.actions.shape:
        _fail(f"log_prob returns shape {list(found.shape)} for {len(batch.actions)} rows")
    slopes = _jacobians(lambda y: model.abduct(batch.states, batch.context, batch.actions, y), following)
    noise = model.abduct(batch.states, batch.context, batch.actions, following)
    wanted = model.prior.log_prob(noise) + torch.linalg.slogdet(slopes)[1]
    _compare("log_prob differs from automatic differentiation", found, wanted, 1e-7 * (1 + wanted.abs()))


def _check_samples(model: TrainableModel, batch: _Batch, seed: int, draws: int = 2000) -> None:
    """The noise of samples has the prior's covariance, within six standard errors of its estimate."""
    state, context, action = batch.states[1], batch.context[1], batch.actions[1]
    inputs = (state.expand(draws, -1), context, action)
    samples = model.sample(*inputs, generator=torch.Generator().manual_seed(seed))
    again = model.sample(*inputs, generator=torch.Generator().manual_seed(seed))
    if not torch.equal(samples, again):
        _fail("sample gives other states for a generator with the same seed")
    noise = model.abduct(*inputs, samples)
    products = noise.unsqueeze(-1) * noise.unsqueeze(-2)
    error = products.std(0) / draws**0.5
    wanted = model.prior.covariance()
    _compare("the noise of samples has another covariance than the prior", products.mean(0), wanted, 6 * error + 1e-9)


def _check_search_copy(model: TransitionModel, frozen: TransitionModel, batch: _Batch) -> None:
    if not frozen.is_for_search("cpu"):
        _fail("for_search returns a model that is not float64, not frozen or not in evaluation mode")
    if frozen.fingerprint() != model.fingerprint():
        _fail("the for_search copy has another fingerprint; bake_ must not change what state_dict returns")
    dtype = next((t.dtype for t in model.state_dict().values() if t.is_floating_point()), torch.float64)
    device = next((t.device for t in model.state_dict().values()), torch.device("cpu"))
    with torch.no_grad():
        own = model.step(
            batch.states.to(device, dtype),
            batch.context.to(device, dtype),
            batch.actions.to(device),
            batch.noise.to(device, dtype),
        )
    wanted = batch.step(frozen)
    # Rounding of float32 inputs and of each layer is stretched by the model's own slopes.
    slopes = _jacobians(lambda x: frozen.step(x, batch.context, batch.actions, batch.noise), batch.states)
    stretch = 1 + torch.linalg.matrix_norm(slopes, ord=2).unsqueeze(-1)
    tolerance = (2e-4 if dtype == torch.float32 else _ROUNDING) * stretch * (1 + wanted.abs() + batch.noise.abs())
    _compare("the for_search copy is another function", own.to(wanted), wanted, tolerance)


def _jacobians(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """Jacobians [N, D, D] of a function of rows [N, D] that do not influence each other."""
    variable = points.clone().requires_grad_()
    values = function(variable)
    rows = [
        torch.autograd.grad(values[:, i].sum(), variable, retain_graph=True, allow_unused=True)[0]
        for i in range(values.shape[1])
    ]
    return torch.stack([torch.zeros_like(points) if row is None else row for row in rows], dim=1)


def _compare_slopes(what: str, slopes: Tensor, allowed: Tensor) -> None:
    excess = slopes - allowed
    if not (excess <= 0).all():
        row = int(excess.nan_to_num(nan=torch.inf).argmax())
        _fail(
            f"{what} is {float(slopes[row]):.9g} at row {row}, above the constant {float(allowed[row]):.9g} "
            "that lipschitz declares"
        )


def _compare(what: str, found: Tensor, wanted: Tensor, tolerance: Tensor) -> None:
    error = (found - wanted).abs()
    if not (error <= tolerance).all():
        worst = float((error - tolerance).nan_to_num(nan=torch.inf).max())
        _fail(f"{what} (by up to {float(error.max()):.3g}, {worst:.3g} more than rounding explains)")


def _fail(what: str) -> None:
    raise VerificationError(f"contract broken: {what}.")

"""The checker of logs: it accepts what searches write, and refuses everything else."""

import re
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import some
from logged import Log, log_of, loggable
from trials import drawn_problem

from ifonly.errors import InputError, StoreError, VerificationError
from ifonly.models import Ensemble, LocationScale
from ifonly.models.fit import FitSettings, fit
from ifonly.models.fit_effects import fit_with_effects
from ifonly.problem import Problem
from ifonly.proofs import check_proof
from ifonly.proofs.coverage import Rules
from ifonly.proofs.question import Question, Record
from ifonly.query import Limits, Query
from ifonly.result import Status
from ifonly.rewards import minus
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.simulate import simulate_cohort
from ifonly.testing.instances import random_ensemble, random_problem


def test_what_searches_write_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for seed, problem in loggable(some(90)):
        result = log_of(problem, path, seed)
        found = check_proof(path)
        assert found.complete, seed
        assert found.sequences == problem.sequence_count()
        assert abs(found.outcomes[-1] - result.outcome) <= 10 * problem.tolerance


@pytest.mark.parametrize("kind", ["additive", "location-scale"])
def test_proofs_beyond_enumeration_are_confirmed(kind: str, tmp_path: Path) -> None:
    sizes = {"horizon": 18, "actions": 10, "state_size": 3, "max_changes": 4, "hidden": (8,), "masked": False}
    problem = random_problem(4, model_kind=kind, reward_kind="linear", constrained=True, strength=1.0, **sizes)
    solve(problem, proof=tmp_path / "log.npz")
    found = check_proof(tmp_path / "log.npz")
    assert found.complete
    assert found.sequences > 20_000_000


def test_models_that_hand_over_to_another_are_replayed(tmp_path: Path) -> None:
    cohort, path = simulate_cohort(20, seed=0, horizon=5), tmp_path / "log.npz"
    untrained = LocationScale(cohort.schema, hidden=(4,))
    with_effects = fit_with_effects(untrained, cohort, settings=FitSettings(epochs=1), seed=0)
    for model in (with_effects, Ensemble([fit(untrained, cohort, epochs=1, seed=0)])):
        solve(Problem.from_episode(cohort[0], model, Query(minus("SOFA"), 1)), proof=path)
        assert check_proof(path).complete


def test_replays_are_the_same_arithmetic_twice(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for seed, problem in loggable(some(60), 500):
        log_of(problem, path, seed)
        generator = torch.Generator().manual_seed(seed)
        sequences = torch.randint(problem.action_count, (20, problem.horizon), generator=generator)
        states, outcomes = problem.rollout(sequences)
        found = Question.read(Record.read(path)).replay(sequences.numpy())
        assert np.allclose(found[0], states.numpy(), rtol=1e-9, atol=1e-9)
        assert (np.abs(found[2] - outcomes.numpy()) <= 10 * problem.tolerance).all(), seed


KINDS = ("linear", "additive", "location-scale")
BESIDE = {"expanded": ("outcomes",), "leaves": ("outcomes",), "cuts": ("bounds", "thresholds")}


def beside(kind: str) -> list[str]:
    """The arrays that have a row for each sequence of a kind."""
    return [kind, f"{kind}/budgets", *(f"{kind}/{name}" for name in BESIDE[kind])]


REASONS = {
    "cuts: a row removed": "neither expanded, replayed nor cut",
    "leaves: a row removed": "neither expanded, replayed nor cut",
    "expanded: a row removed": "neither expanded, replayed nor cut|not expanded",
    "cuts: a row twice": "more than once",
    "leaves: a row twice": "more than once",
    "expanded: a row twice": "more than once",
    "a bound lowered": "below what its own sequence earns",
    "a bound raised": "above the threshold",
    "too many changes": "has more changes",
}
"""Some things that are done to logs, and what must be said of them."""


def without(log: Log, kind: str, row: object) -> Log:
    """A log without some rows."""
    changed = deepcopy(log)
    for name in beside(kind):
        changed.arrays[name] = np.delete(changed.arrays[name], row, axis=0)
    return changed


def twice(log: Log, kind: str, row: int) -> Log:
    """A log with one row more than once."""
    changed = deepcopy(log)
    for name in beside(kind):
        changed.arrays[name] = np.concatenate([changed.arrays[name], changed.arrays[name][row : row + 1]])
    return changed


def altered(log: Log, name: str, place: object, value: object) -> Log:
    changed = deepcopy(log)
    changed.arrays[name] = changed.arrays[name].copy()
    changed.arrays[name][place] = value
    return changed


def headed(log: Log, **entries: object) -> Log:
    changed = deepcopy(log)
    changed.header |= entries
    return changed


def mutations(log: Log, rng: np.random.Generator) -> Iterator[tuple[str, Log]]:
    """Logs that prove nothing, and what was done to them."""
    arrays, question = log.arrays, question_of(log)
    for kind in BESIDE:
        if not len(arrays[kind]):
            continue
        row = int(rng.integers(len(arrays[kind])))
        yield f"{kind}: a row removed", without(log, kind, row)
        yield f"{kind}: a row twice", twice(log, kind, row)
        yield f"{kind}: cut off", without(log, kind, slice(row, None))
        yield f"{kind}: of another budget", altered(log, f"{kind}/budgets", row, arrays[f"{kind}/budgets"][row] - 1)
        step = int(rng.integers(arrays[kind].shape[1]))
        action = int(rng.integers(arrays["symbols"].shape[1]))
        if action != arrays[kind][row, step]:
            yield f"{kind}: a sequence altered", altered(log, kind, (row, step), action)
    away = 1e-3 + 100 * log.header["tolerance"]
    fine = Rules(question)
    for kind in ("leaves", "expanded"):
        for row in np.flatnonzero(fine.admissible(arrays[kind].astype(np.int64)))[:1]:
            told = arrays[f"{kind}/outcomes"][row]
            yield f"{kind}: an outcome altered", altered(log, f"{kind}/outcomes", row, told - away)
    best = arrays["best/outcomes"]
    for budget in np.flatnonzero(np.isfinite(best)):
        for name, by in (("raised", away), ("lowered", -away)):
            yield f"the optimum of {budget} {name}", altered(log, "best/outcomes", budget, best[budget] + by)
    most = int((arrays["best"][-1] != arrays["observed"]).sum())
    if most and np.isfinite(best[0]):
        changed = altered(log, "best", slice(most), arrays["best"][-1])
        for name in ("best/outcomes", "best/bounds"):
            changed = altered(changed, name, slice(most), best[-1])
        yield "too many changes", changed
    if len(arrays["cuts"]):
        row = int(rng.integers(len(arrays["cuts"])))
        limit = best[arrays["cuts/budgets"][row]]
        yield "a threshold raised", altered(log, "cuts/thresholds", row, limit + away)
        yield "a bound raised", altered(log, "cuts/bounds", row, limit + away)
        own = arrays["cuts"][row : row + 1].astype(np.int64)
        if fine.admissible(own)[0]:
            yield "a bound lowered", altered(log, "cuts/bounds", row, question.replay(own)[2][0] - away)
    yield from altered_questions(log, away, rng)


def altered_questions(log: Log, away: float, rng: np.random.Generator) -> Iterator[tuple[str, Log]]:
    """The same tree for another question."""
    symbols, after, options = log.arrays["symbols"], log.arrays["after"], children(log)
    for step, action in rng.permutation(np.argwhere(symbols >= 0))[:3].tolist():
        changed = altered(log, "symbols", (step, action), 0 if symbols[step, action] else after.shape[1] - 1)
        if not np.array_equal(children(changed), options):  # else it may well prove the other question
            yield f"the mask altered at {step}, {action}", changed
    for position, symbol in rng.permutation(np.argwhere(after >= 0))[:3].tolist():
        changed = altered(log, "after", (position, symbol), 0 if after[position, symbol] else len(after) - 1)
        if not position or not symbol or not np.array_equal(children(changed), options):
            yield f"what may follow altered at {position}, {symbol}", changed
    for by in (-1, 1):
        yield "another budget", headed(log, max_changes=log.header["max_changes"] + by)
    yield "not complete", headed(log, complete=False)
    yield "no tolerance", headed(log, tolerance=-1.0)
    yield "another kind of model", headed(log, model="flow")
    yield "another reward", headed(log, reward=[*log.header["reward"], "linear"])
    yield "an entry missing", Log({name: one for name, one in log.header.items() if name != "max_changes"}, log.arrays)
    sequences = log.arrays["best"][-1:].astype(np.int64)
    before = question_of(log).replay(sequences)[2]
    others = [(name, altered(log, name, ..., log.arrays[name] + 0.5)) for name in ("noise", "first_state")]
    for name, changed in [*others, ("change_cost", headed(log, change_cost=log.header["change_cost"] + 1))]:
        if abs(question_of(changed).replay(sequences)[2] - before)[0] > away:
            yield f"another {name}", changed


def children(log: Log) -> np.ndarray:
    """What may follow the recorded sequence and the expanded ones."""
    question = question_of(log)
    nodes = np.concatenate([log.arrays["expanded"], log.arrays["observed"][None]]).astype(np.int64)
    budgets = np.append(log.arrays["expanded/budgets"], question.max_changes)
    rules = {budget: Rules(replace(question, max_changes=int(budget))) for budget in np.unique(budgets)}
    return np.concatenate([rules[b].children(node[None]) for b, node in zip(budgets, nodes, strict=True)])


def question_of(log: Log) -> Question:
    return Question.read(Record("", log.header, log.arrays))


def test_mutations_are_refused(tmp_path: Path) -> None:
    path, tried = tmp_path / "log.npz", {}
    for seed, problem in loggable(some(24), 200):
        log_of(problem, path, seed)
        log = Log.read(path)
        log.write(path, signed=True)
        check_proof(path)  # as it is, it holds
        for name, changed in mutations(log, np.random.default_rng(seed)):
            kind = re.sub("[0-9, ]+", " ", name)
            tried[kind] = tried.get(kind, 0) + 1
            changed.write(path, signed=True)
            with pytest.raises(VerificationError, match=REASONS.get(name, "is refused: ")):
                check_proof(path)
            if tried[kind] <= 3:
                changed.write(path, signed=False)
                with pytest.raises(StoreError, match="checksum"):
                    check_proof(path)
    assert all(count >= some(3) for count in tried.values()), tried
    assert len(tried) >= 30, tried


def test_any_damage_shows(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    log_of(random_problem(7, model_kind="linear", reward_kind="linear", horizon=4), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for end in rng.integers(len(whole), size=some(30)):
        path.write_bytes(whole[:end])
        with pytest.raises(StoreError):
            check_proof(path)
    path.write_bytes(whole)
    log = Log.read(path)
    lowered = altered(log, "cuts/bounds", ..., log.arrays["cuts/bounds"] - 1e-6)  # may be true, but was not written
    others = [headed(log, **{name: "other"}) for name in log.header if name not in ("format", "version")]
    for changed in (lowered, *others):
        changed.write(path, signed=False)
        with pytest.raises(StoreError, match="checksum"):
            check_proof(path)
    for name in ("format", "version"):
        headed(log, **{name: "other"}).write(path, signed=True)
        with pytest.raises(StoreError, match=name):
            check_proof(path)
    with pytest.raises(StoreError, match="no such file"):
        check_proof(tmp_path / "nothing.npz")
    path.write_text("{}")
    with pytest.raises(StoreError, match="no log"):
        check_proof(path)


def forged(log: Log, cut: np.ndarray, step: int, told: float) -> Log:
    """All below `cut`, whose last change is at `step`, is cut away with bounds that fit; itself it is called best."""
    for kind in BESIDE:
        log = without(log, kind, np.flatnonzero((log.arrays[kind][:, : step + 1] == cut[: step + 1]).all(1)))
    arrays, budgets = log.arrays, log.header["max_changes"]
    arrays["best"][1:] = cut
    arrays["best/outcomes"][1:] = arrays["best/bounds"][1:] = told
    for name, rows in (
        ("cuts", np.repeat(cut[None], budgets, axis=0)),
        ("cuts/budgets", np.arange(1, budgets + 1, dtype=np.int16)),
        ("cuts/bounds", np.full(budgets, told)),
        ("cuts/thresholds", np.full(budgets, told)),
    ):
        arrays[name] = np.concatenate([arrays[name], rows])
    for name in ("cuts/bounds", "cuts/thresholds"):
        arrays[name] = np.minimum(arrays[name], told)
    return log


def test_a_forged_optimum_is_found_below_its_cut(tmp_path: Path) -> None:
    path, below = tmp_path / "log.npz", 0
    for seed in range(some(60)):
        problem = random_problem(
            seed, horizon=4, actions=3, max_changes=2, reward_kind="linear", model_kind=KINDS[seed % 3]
        )
        result = log_of(problem, path)
        if len(result.changes) < 2 or problem.must_change.any():
            continue
        step = result.changes[0].step
        cut = Log.read(path).arrays["observed"].copy()
        cut[step] = result.actions[step]
        told = problem.outcome(cut.astype(np.int64))
        if problem.observed_outcome < told < result.outcome - 1e-3:
            forged(Log.read(path), cut, step, told).write(path, signed=True)
            with pytest.raises(VerificationError) as refusal:
                check_proof(path)
            below += "lies below it" in str(refusal.value)
    assert below >= some(6)


def test_what_counts_as_equal_is_told(tmp_path: Path) -> None:
    """A log states what is lost by rounding; one that states much proves little, and shows it."""
    path = tmp_path / "log.npz"
    problem = random_problem(7, model_kind="linear", reward_kind="linear", horizon=4)
    log_of(problem, path)
    found = check_proof(path)
    assert 0 < found.rounding <= 10 * problem.tolerance + 1e-12 * max(abs(one) for one in found.bounds)
    headed(Log.read(path), tolerance=2.0).write(path, signed=True)
    lax = check_proof(path)
    assert lax.rounding >= 20
    assert "outcomes less than 2e+01 better count as equal" in str(lax)


@pytest.mark.parametrize("seed", [2959, 4127])
def test_large_outcomes_are_known_by_their_size(seed: int, tmp_path: Path) -> None:
    """On a logarithmic scale, tens of millions: up to the share (R4) of themselves and no further."""
    problem, path = drawn_problem(seed), tmp_path / "log.npz"
    assert isinstance(problem, Problem)
    log_of(problem, path)
    log, found = Log.read(path), check_proof(path)
    budget = int(np.nan_to_num(found.bounds, neginf=0.0).argmax())
    size = found.bounds[budget]
    assert 10 * problem.tolerance < 1e-12 * size <= found.rounding
    for by in (-3e-12, 3e-12):
        told = log.arrays["best/outcomes"][budget] + by * size
        altered(log, "best/outcomes", budget, told).write(path, signed=True)
        with pytest.raises(VerificationError, match="is claimed; its replay gives"):
            check_proof(path)


def test_without_work_cuts_rest_on_the_search_and_the_words_say_so(tmp_path: Path) -> None:
    path, resting = tmp_path / "log.npz", 0
    for seed, problem in loggable(some(60), 4000):
        log_of(problem, path, 2 * seed)
        found = check_proof(path, work=0)
        assert found.confirmed == 0
        assert ("rest on the bounds of the search alone" in str(found)) is (found.cuts > 0)
        resting += found.cuts > 0
    assert resting >= some(10)


def test_a_search_that_was_stopped_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    problem = random_problem(3, model_kind="additive", horizon=5, actions=3, reward_kind="linear", masked=False)
    result = solve(problem, BranchAndBound(batch=1), limits=Limits(nodes=2), proof=path)
    assert result.status is Status.NODE_LIMIT
    with pytest.raises(VerificationError, match="stopped before its end"):
        check_proof(path)
    granted = solve(problem, limits=Limits(gap=0.5), proof=path)
    assert granted.gap <= 0.5
    assert check_proof(path).bounds[-1] == granted.upper_bound


def test_what_cannot_be_checked_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for problem, words in (
        (random_ensemble(1, model_kind="linear"), "an ensemble"),
        (random_problem(1, model_kind="linear", reward_kind="custom"), "the reward is code"),
        (random_problem(1, model_kind="monotone-flow", reward_kind="linear"), "not monotone-flow"),
    ):
        with pytest.raises(InputError, match=words):
            solve(problem, proof=path)
    with pytest.raises(InputError, match="not by greedy"):
        solve(random_problem(1, model_kind="linear", reward_kind="linear"), Greedy(), proof=path)
    assert not path.exists()


def test_the_checker_knows_neither_torch_nor_the_solver() -> None:
    code = (
        "import sys; import ifonly.proofs; "
        "ours = {n for n in sys.modules if n.startswith('ifonly.')} - {'ifonly.errors', 'ifonly.progress'}; "
        "assert 'torch' not in sys.modules and all(n.startswith('ifonly.proofs') for n in ours), ours"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_logging_changes_no_answer(tmp_path: Path) -> None:
    for seed, problem in loggable(some(30), 6000):
        solver = BranchAndBound(batch=2)
        logged, plain = solve(problem, solver, proof=tmp_path / "log.npz"), solve(problem, solver)
        assert (logged.actions == plain.actions).all(), seed
        assert logged.outcome == plain.outcome
        assert logged.stats.nodes_expanded == plain.stats.nodes_expanded

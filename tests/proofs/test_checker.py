"""The checker of logs: it accepts what searches write, and refuses everything else."""

import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import some
from logged import Log, log_of, loggable

from ifonly.errors import InputError, StoreError, VerificationError
from ifonly.proofs import check_proof
from ifonly.proofs.coverage import Rules
from ifonly.proofs.question import Question, Record
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.testing.instances import random_ensemble, random_problem


def test_what_searches_write_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for seed, problem in loggable(some(150)):
        result = log_of(problem, path, seed)
        found = check_proof(path)
        assert found.complete, seed
        assert found.sequences == problem.sequence_count()
        assert abs(found.outcome - result.outcome) <= 10 * problem.tolerance


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


def without(log: Log, kind: str, row: int) -> Log:
    """A log without one row."""
    changed = deepcopy(log)
    beside = {"cuts": ("cut_bounds", "cut_thresholds")}.get(kind, (f"{kind}_outcomes",))
    for name in (kind, *beside):
        changed.arrays[name] = np.delete(changed.arrays[name], row, axis=0)
    return changed


def twice(log: Log, kind: str, row: int) -> Log:
    """A log with one row more than once."""
    changed = deepcopy(log)
    beside = {"cuts": ("cut_bounds", "cut_thresholds")}.get(kind, (f"{kind}_outcomes",))
    for name in (kind, *beside):
        changed.arrays[name] = np.concatenate([changed.arrays[name], changed.arrays[name][row : row + 1]])
    return changed


def altered(log: Log, name: str, place: object, value: object) -> Log:
    changed = deepcopy(log)
    changed.arrays[name] = changed.arrays[name].copy()
    changed.arrays[name][place] = value
    return changed


def mutations(log: Log, rng: np.random.Generator) -> Iterator[tuple[str, Log]]:
    """Logs that prove nothing, and what was done to them."""
    arrays = log.arrays
    for kind in ("cuts", "leaves", "expanded"):
        if len(arrays[kind]):
            row = int(rng.integers(len(arrays[kind])))
            yield f"{kind}: a row removed", without(log, kind, row)
            yield f"{kind}: a row twice", twice(log, kind, row)
            step = int(rng.integers(arrays[kind].shape[1]))
            action = int(rng.integers(arrays["allowed"].shape[1]))
            if action != arrays[kind][row, step]:
                yield f"{kind}: a sequence altered", altered(log, kind, (row, step), action)
    away = 1e-3 + 100 * log.header["slack"]
    fine = Rules(question_of(log))
    for kind in ("leaves", "expanded"):
        rows = np.flatnonzero(fine.admissible(arrays[kind].astype(np.int64))) if len(arrays[kind]) else []
        for row in rows[:1]:
            told = arrays[f"{kind}_outcomes"][row]
            yield f"{kind}: an outcome altered", altered(log, f"{kind}_outcomes", row, told - away)
    best = arrays["best_outcomes"]
    for budget in np.flatnonzero(np.isfinite(best)):
        for name, by in (("raised", away), ("lowered", -away)):
            yield f"the optimum of {budget} {name}", altered(log, "best_outcomes", budget, best[budget] + by)
    if len(arrays["thresholds"]):
        yield "a threshold raised", altered(log, "thresholds", (0, -1), best[-1] + away)
    if len(arrays["cuts"]):
        row = int(rng.integers(len(arrays["cuts"])))
        yield "a bound raised", altered(log, "cut_bounds", (row, -1), best[-1] + away)
        if fine.admissible(arrays["cuts"][row : row + 1].astype(np.int64))[0]:
            own = question_of(log).replay(arrays["cuts"][row : row + 1].astype(np.int64))[2][0]
            yield "a bound lowered", altered(log, "cut_bounds", (row, -1), own - away)
    yield from altered_questions(log, fine.sequence_count())


def altered_questions(log: Log, count: int) -> Iterator[tuple[str, Log]]:
    """The same tree for another question."""
    allowed = log.arrays["allowed"]
    for step, action in np.ndindex(*allowed.shape):
        changed = altered(log, "allowed", (step, action), not allowed[step, action])
        if Rules(question_of(changed)).sequence_count() != count:
            yield f"the mask altered at {step}, {action}", changed
    for by in (-1, 1):
        changed = deepcopy(log)
        changed.header["max_changes"] += by
        yield "another budget", changed
    changed = deepcopy(log)
    changed.header["complete"] = False
    yield "not complete", changed


def question_of(log: Log) -> Question:
    return Question.read(Record("", log.header, log.arrays))


def test_mutations_are_refused(tmp_path: Path) -> None:
    path, tried = tmp_path / "log.npz", {}
    for seed, problem in loggable(some(120), 200):
        log_of(problem, path, seed)
        log = Log.read(path)
        log.write(path, signed=True)
        check_proof(path)  # as it is, it holds
        for name, changed in mutations(log, np.random.default_rng(seed)):
            kind = name.rstrip("0123456789, ")
            tried[kind] = tried.get(kind, 0) + 1
            changed.write(path, signed=True)
            with pytest.raises((VerificationError, StoreError)):
                print(seed, name, check_proof(path))
            if tried[kind] <= 3:
                changed.write(path, signed=False)
                with pytest.raises(StoreError, match="checksum"):
                    check_proof(path)
    assert all(count >= some(20) for count in tried.values()), tried
    assert len(tried) >= 14, tried


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
    lowered = Log.read(path)
    lowered.arrays["cut_bounds"] = lowered.arrays["cut_bounds"] - 1e-6  # still true, but not what was written
    lowered.write(path, signed=False)
    with pytest.raises(StoreError, match="checksum"):
        check_proof(path)
    with pytest.raises(StoreError, match="no such file"):
        check_proof(tmp_path / "nothing.npz")
    path.write_text("{}")
    with pytest.raises(StoreError, match="no log"):
        check_proof(path)


def test_a_forged_optimum_is_found_below_its_cut(tmp_path: Path) -> None:
    """The subtree of the best change is cut away, with a bound that fits, and the second best is called best."""
    path, found = tmp_path / "log.npz", 0
    for seed, problem in loggable(some(150), 2000):
        result = log_of(problem, path, seed)
        log = Log.read(path)
        observed = log.arrays["observed"]
        if not result.changes or result.outcome - problem.observed_outcome < 1e-3 or problem.must_change.any():
            continue
        step, action = result.changes[0].step, int(result.actions[result.changes[0].step])
        cut = observed.copy()
        cut[step] = action
        own = problem.outcome(cut.astype(np.int64))
        if own > problem.observed_outcome + 1e-6 or not problem.admissible(torch.tensor(cut).long()[None]).all():
            continue  # the bound would have to be above what is claimed
        for kind in ("expanded", "leaves", "cuts"):
            rows = log.arrays[kind]
            below = (rows[:, : step + 1] == cut[: step + 1]).all(1)
            for row in np.flatnonzero(below)[::-1]:
                log = without(log, kind, int(row))
        budgets = problem.max_changes + 1
        log.arrays["best"] = np.repeat(observed[None], budgets, axis=0)
        log.arrays["best_outcomes"] = np.full(budgets, problem.observed_outcome)
        log.arrays["thresholds"] = np.full((1, budgets), problem.observed_outcome)
        for name, row in (
            ("cuts", cut[None]),
            ("cut_bounds", np.full((1, budgets), problem.observed_outcome)),
            ("cut_thresholds", np.zeros(1, dtype=np.int32)),
        ):
            log.arrays[name] = np.concatenate([log.arrays[name], row])
        log.arrays["cut_thresholds"][:] = 0
        log.arrays["cut_bounds"][:] = np.minimum(log.arrays["cut_bounds"], problem.observed_outcome)
        log.write(path, signed=True)
        with pytest.raises(VerificationError):
            check_proof(path)
        found += 1
    assert found >= some(5)


def test_without_work_cuts_rest_on_the_search_and_the_words_say_so(tmp_path: Path) -> None:
    path, resting = tmp_path / "log.npz", 0
    for seed, problem in loggable(some(60), 4000):
        log_of(problem, path, 2 * seed)
        found = check_proof(path, work=0)
        assert found.confirmed == 0
        assert ("rest on the bounds of the search alone" in str(found)) is (found.cuts > 0)
        resting += found.cuts > 0
    assert resting > 5


def test_a_search_that_was_stopped_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    problem = random_problem(3, model_kind="additive", horizon=5, actions=3, reward_kind="linear", masked=False)
    result = solve(problem, BranchAndBound(batch=1), limits=Limits(nodes=2), proof=path)
    assert result.status is Status.NODE_LIMIT
    with pytest.raises(VerificationError, match="stopped before its end"):
        check_proof(path)
    granted = solve(problem, limits=Limits(gap=0.5), proof=path)
    assert check_proof(path).slack == 0.5
    assert granted.gap <= 0.5


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


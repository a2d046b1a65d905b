"""The checker's own bound is nowhere below the truth, and says something."""

import itertools
from pathlib import Path

import numpy as np
from effort import some
from logged import log_of, loggable

from ifonly.proofs.expansion import Expansion
from ifonly.proofs.question import Question, Record


def best_to_go(question: Question, t: int, states: np.ndarray, changes: int) -> np.ndarray:
    """By trying every sequence of allowed actions from t on, whatever may follow what."""
    rest = range(t, question.horizon)
    options = [sorted({int(question.observed[u]), *np.flatnonzero(question.allowed[u]).tolist()}) for u in rest]
    best = np.full(len(states), -np.inf)
    for actions in itertools.product(*options):
        if sum(a != question.observed[u] for u, a in zip(rest, actions, strict=True)) > changes:
            continue
        x, total = states, np.zeros(len(states))
        for u, a in zip(rest, actions, strict=True):
            chosen = np.full(len(states), a)
            total = total + question.rewards(u, x, chosen)
            x = question.step(u, x, chosen) if u < question.horizon - 1 else x
        best = np.maximum(best, total)
    return best


def test_no_rest_earns_more_than_its_bound(tmp_path: Path) -> None:
    path, compared, close = tmp_path / "log.npz", 0, 0
    for seed, problem in loggable(some(60), 1000):
        log_of(problem, path, seed)
        question = Question.read(Record.read(path))
        bound = Expansion.of(question)
        if bound is None:
            continue
        recorded = question.replay(question.observed[None])[0][0]
        rng = np.random.default_rng(seed)
        for t in range(question.horizon):
            away = rng.normal(size=(12, len(recorded[t]))) * 10.0 ** rng.uniform(-2, 1.5, size=(12, 1))
            states = recorded[t] + np.concatenate([np.zeros((1, len(recorded[t]))), away])
            for changes in range(min(2, question.max_changes) + 1):
                truth, found = best_to_go(question, t, states, changes), bound(t, states, changes)
                size = 1 + np.abs(truth)
                assert (found >= truth - 1e-9 * size).all(), (seed, t, changes)
                assert found[0] < np.inf or changes > 0, "the recorded state itself"
                compared += len(states)
                close += int((found <= truth + 0.5 * size).sum())
    assert compared > some(700)
    assert close > 0.1 * compared, "the bound says nothing"

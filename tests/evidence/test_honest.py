"""One half of the subjects chooses, the other judges: by hand, and against the list of all sequences."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import some

from ifonly import ActionSpace, Episode, Feature, Query, Schema, examine, minus, solve
from ifonly.errors import InputError
from ifonly.evidence.honest import honest_gain
from ifonly.models import Additive, Ensemble, TransitionModel
from ifonly.models.standing import MemberLabel
from ifonly.problem import EnsembleProblem, Problem
from ifonly.records import from_plain, to_plain
from ifonly.result import Evidence
from ifonly.result.verdict import HonestGain
from ifonly.testing.instances import random_ensemble

LABELS = [MemberLabel(kind, half, weight) for kind, weight in (("a", 0.3), ("b", 0.2)) for half in (0, 1)]
"""Two kinds, each fitted to either half: members 0 and 2 are of the first one, 1 and 3 of the other."""


# --- by hand: at the first of two steps treatment adds to the pain of the second what each member says


SCHEMA = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
EPISODE = Episode("e", SCHEMA, states=[[5.0], [4.0]], actions=[0, 0])


def believing(*offsets: float) -> Ensemble:
    """Members, in the order of `LABELS`, that believe treatment to add so much; the centre is the first."""
    return Ensemble([member_that_adds(offset) for offset in offsets], labels=LABELS)


def member_that_adds(offset: float) -> Additive:
    """next = offset * treated + noise: one hidden unit, which sees the action alone."""
    model = Additive(SCHEMA, hidden=(1,)).double()
    for weights in model.location.parameters():
        torch.nn.init.zeros_(weights)
    with torch.no_grad():
        model.location.action.raw[0, 1] = 1.0
        model.location.layers[0].raw.fill_(offset / math.tanh(1.0))
    return model.eval()


@pytest.mark.parametrize(
    ("objective", "promised", "judged"),
    [
        # The first half's member of the larger weight treats, for a gain of 2; of this the other half says
        # (0.3 * -1 + 0.2 * 3) / 0.5 = 0.6. The second half's waits: nothing promised, nothing judged.
        (None, (2.0 + 0.0) / 2, (0.6 + 0.0) / 2),
        # By its weighted mean the first half promises (0.3 * 2 + 0.2 * 1) / 0.5 = 1.6, the second 0.6; both treat.
        ("mean", (1.6 + 0.6) / 2, (0.6 + 1.6) / 2),
        # The worst of the first half gains 1, of the second loses 1.
        ("worst", (1.0 + 0.0) / 2, (0.6 + 0.0) / 2),
    ],
)
def test_what_is_promised_and_judged_is_what_it_is_by_hand(
    objective: str | None, promised: float, judged: float
) -> None:
    ensemble = believing(-2.0, 1.0, -1.0, -3.0)
    query = Query(minus("pain"), max_changes=1, objective=objective)
    kind = Problem if objective is None else EnsembleProblem
    found = honest_gain(kind.from_episode(EPISODE, ensemble, query), ensemble)
    assert found.promised == pytest.approx(promised)
    assert found.judged == pytest.approx(judged)


def test_halves_that_agree_keep_all_of_their_promise() -> None:
    ensemble = believing(-2.0, -2.0, -2.0, -2.0)
    problem = Problem.from_episode(EPISODE, ensemble, Query(minus("pain"), max_changes=1))
    assert honest_gain(problem, ensemble) == HonestGain(2.0, 2.0)


# --- against the list of all sequences


def gains(problem: Problem, model: TransitionModel) -> dict[tuple[int, ...], float]:
    """What every admissible sequence gains under a model, one by one."""
    put = problem.put_to(model)
    listed = torch.tensor(list(itertools.product(range(put.action_count), repeat=put.horizon)))
    allowed = [tuple(row) for row in listed[put.admissible(listed)].tolist()]
    return {sequence: put.outcome(sequence) - put.observed_outcome for sequence in allowed}


@pytest.mark.parametrize("seed", range(some(9)))
def test_sequences_of_each_half_are_judged_by_the_other(seed: int) -> None:
    made = random_ensemble(seed, members=4, horizon=4, actions=3, max_changes=2, model_kind="location-scale")
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.1, 1, size=2)
    labels = [replace(label, weight=float(shares[number // 2])) for number, label in enumerate(LABELS)]
    ensemble = Ensemble(made.models, labels=labels)  # type: ignore[arg-type]
    problem = made.members[0]
    objective = (None, "mean", "worst")[seed % 3]
    put: Problem | EnsembleProblem = problem
    if objective is not None:
        put = EnsembleProblem.from_problem(problem, ensemble, objective=objective)
    found = honest_gain(put, ensemble)

    alone = [gains(problem, model) for model in ensemble]
    weights = [label.weight for label in labels]

    def mean(members: tuple[int, ...], sequence: tuple[int, ...]) -> float:
        total = math.fsum(weights[one] for one in members)
        return math.fsum(weights[one] * alone[one][sequence] for one in members) / total

    promised, judged = [], []
    for choosing, judging in (((0, 2), (1, 3)), ((1, 3), (0, 2))):
        if objective is None:
            chosen = alone[max(choosing, key=lambda one: weights[one])]
        elif objective == "mean":
            chosen = {sequence: mean(choosing, sequence) for sequence in alone[0]}
        else:
            chosen = {sequence: min(alone[one][sequence] for one in choosing) for sequence in alone[0]}
        best = max(chosen, key=lambda sequence: chosen[sequence])
        promised.append(chosen[best])
        judged.append(mean(judging, best))
    assert found.promised == pytest.approx(sum(promised) / 2, abs=1e-6)
    assert found.judged == pytest.approx(sum(judged) / 2, abs=1e-6)


# --- where it is told


def test_it_is_part_of_the_evidence_where_the_query_asks_for_it_and_members_have_halves() -> None:
    ensemble = believing(-2.0, 1.0, -1.0, -3.0)
    query = Query(minus("pain"), max_changes=1, honest=True)
    problem = Problem.from_episode(EPISODE, ensemble, query)
    answer = solve(problem)
    evidence = examine(problem, answer)
    assert evidence.failures == ()
    assert evidence.honest is not None
    assert (evidence.honest.promised, evidence.honest.judged) == pytest.approx((1.0, 0.3))
    assert from_plain(Evidence, to_plain(evidence), what="evidence").honest == evidence.honest
    assert examine(problem, answer, honest=False).honest is None
    without = Problem.from_episode(EPISODE, ensemble, query.with_changes(honest=False))
    assert examine(without, answer).honest is None
    assert examine(without, answer, honest=True).honest == evidence.honest


@pytest.mark.parametrize("objective", ["mean", "worst", 0.25])
def test_members_that_choose_together_are_asked_by_halves(objective: str | float) -> None:
    ensemble = believing(-2.0, 1.0, -1.0, -3.0)
    query = Query(minus("pain"), max_changes=1, honest=True, objective=objective)
    problem = EnsembleProblem.from_episode(EPISODE, ensemble, query)
    evidence = examine(problem, solve(problem))
    assert evidence.failures == ()
    assert evidence.honest == honest_gain(problem, ensemble)
    assert evidence.honest.together
    assert evidence.judgement is None
    alone = Problem.from_episode(EPISODE, ensemble, query.with_changes(objective=None))
    assert not examine(alone, solve(alone)).honest.together


def test_without_both_halves_there_is_nothing_to_tell() -> None:
    members = believing(-2.0, 1.0, -1.0, -3.0).members
    for labels in (None, [MemberLabel("a", 0, 0.3), MemberLabel("b", 0, 0.2)] * 2):
        refits = Ensemble(members, labels=labels)
        problem = Problem.from_episode(EPISODE, refits, Query(minus("pain"), max_changes=1, honest=True))
        with pytest.raises(InputError, match="both halves of the subjects"):
            honest_gain(problem, refits)
        assert examine(problem, solve(problem)).honest is None

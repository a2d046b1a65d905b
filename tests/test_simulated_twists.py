"""Worlds with a twist: they know all of a stay, records do not, and every counterfactual stays exact."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ifonly.data import Cohort
from ifonly.errors import InputError
from ifonly.models import load_model, save_model
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import minus
from ifonly.simulate import Clinician, SepsisWorld, sepsis_schema, simulate_cohort
from ifonly.simulate.equations import TWISTS
from ifonly.testing import check_transition_model

HIDDEN = {"plain": [], "frailty": ["frailty"], "volume": ["volume"], "drowning": []}
VISIBLE = [feature.name for feature in sepsis_schema().features]
SOFA = VISIBLE.index("SOFA") - len(sepsis_schema().context)


def stays(twist: str, count: int = 40, *, clinician: Clinician | None = None) -> tuple[SepsisWorld, Cohort]:
    world = SepsisWorld(twist)
    return world, simulate_cohort(count, seed=3, horizon=6, world=world, clinician=clinician or Clinician())


@pytest.mark.parametrize("twist", TWISTS)
def test_keeps_every_contract_of_a_model(twist: str) -> None:
    check_transition_model(SepsisWorld(twist), spread=0.5, noise_spread=0.4)


@pytest.mark.parametrize("twist", TWISTS)
def test_replaying_what_was_done_gives_the_record(twist: str) -> None:
    world, complete = stays(twist)
    record = world.recorded(complete)
    for number in range(5):
        problem = Problem.from_episode(complete[number], world, Query(minus("SOFA"), 1))
        states = problem.decode(problem.rollout(problem.observed_actions.unsqueeze(0))[0][0])
        assert np.allclose(states[:, : record.states.shape[1]], record[number].states, rtol=1e-9)
        assert problem.outcome(record[number].actions) == pytest.approx(-record[number].states[:, SOFA].sum())


@pytest.mark.parametrize("twist", TWISTS)
def test_a_counterfactual_is_what_the_same_noise_would_have_brought(twist: str) -> None:
    """Step by step from the first state, with the noise and the hidden features that the stay truly had."""
    world, complete = stays(twist)
    episode = complete[1]
    states = torch.as_tensor(world.scaler.states.encode(episode.states))
    context = torch.as_tensor(world.scaler.context.encode(episode.context))
    done = torch.as_tensor(np.array(episode.actions))
    noise = world.abduct(states[:-1], context[:-1], done[:-1], states[1:])
    other = done.clone()
    other[1] = 24 - other[1]
    course = [states[0]]
    for t in range(len(episode) - 1):
        course.append(world.step(course[-1], context[t], other[t], noise[t]))
    wanted = -world.scaler.states.decode(torch.stack(course).numpy())[:, SOFA].sum()
    assert Problem.from_episode(episode, world, Query(minus("SOFA"), 1)).outcome(other.numpy()) == pytest.approx(wanted)


@pytest.mark.parametrize("twist", TWISTS)
def test_records_hide_what_nobody_writes_down(twist: str) -> None:
    world, complete = stays(twist)
    record = world.recorded(complete)
    assert record.schema == sepsis_schema()
    assert [f.name for f in world.schema.features] == VISIBLE + HIDDEN[twist]
    assert (record.ids, record.subjects) == (complete.ids, complete.subjects)
    assert np.array_equal(record.actions, complete.actions)
    with pytest.raises(InputError):
        SepsisWorld("frailty" if twist != "frailty" else "volume").recorded(complete)


def test_what_is_hidden_matters() -> None:
    """Judged by the world as the record shows it, answers would be wrong."""
    for twist in ("frailty", "volume"):
        world, complete = stays(twist)
        inputs = (complete.states[:8].copy(), complete.context[:8].copy())
        hidden = inputs[0] if twist == "volume" else inputs[1]
        before = _next(world, *inputs)
        hidden[:, -1] += 1.0
        moved = np.abs(_next(world, *inputs)[:, SOFA] - before[:, SOFA])
        assert (moved > 0.05).all()


def _next(world: SepsisWorld, states: np.ndarray, context: np.ndarray) -> np.ndarray:
    encoded = (
        torch.as_tensor(world.scaler.states.encode(states)),
        torch.as_tensor(world.scaler.context.encode(context)),
    )
    noise = torch.zeros_like(encoded[0])
    return world.step(*encoded, torch.full((len(states),), 24), noise).numpy()


def test_only_clinicians_with_insight_act_on_what_is_hidden() -> None:
    def correlation(clinician: Clinician) -> float:
        _, cohort = stays("frailty", 600, clinician=clinician)
        frailty, doses = cohort.context[::6, -1], (cohort.actions // 5).reshape(-1, 6).mean(axis=1)
        return float(np.corrcoef(frailty, doses)[0, 1])

    blind, seeing = correlation(Clinician()), correlation(Clinician(insight=(0.8, 0.8)))
    assert seeing > 0.3
    assert blind < 0.2  # frail patients have lower pressure, which anybody sees


def test_where_nobody_gives_fluids_nobody_does() -> None:
    world, cohort = stays("drowning", 200, clinician=Clinician(no_fluids_above=1.0))
    states = world.scaler.states.encode(cohort.states)
    injured = states[:, 0] - states[:, 1] > 1.0
    fluids = cohort.actions % 5
    assert injured.mean() > 0.1
    assert (fluids[injured] == 0).all()
    assert (fluids[~injured] > 0).mean() > 0.5


def test_a_twist_is_kept_in_checkpoints_and_told(tmp_path: Path) -> None:
    world = SepsisWorld("volume")
    save_model(world, tmp_path / "world")
    loaded = load_model(tmp_path / "world", schema=world.schema)
    assert loaded.fingerprint() == world.fingerprint() != SepsisWorld().fingerprint()
    assert SepsisWorld("plain").fingerprint() == SepsisWorld().fingerprint()
    assert "squeezing" in SepsisWorld.describe("volume")
    assert "squeezing" not in SepsisWorld.describe()
    with pytest.raises(InputError, match=r"gravity.*plain, frailty"):
        SepsisWorld("gravity")

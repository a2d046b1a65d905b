"""A finished run together with the episodes and the model that it is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import torch

from ifonly.data.cohort import Cohort
from ifonly.data.store import load_cohort
from ifonly.errors import InputError, StoreError
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour
from ifonly.evidence.examination import Examination
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.models.standing import Standing, worst_of
from ifonly.problem import BaseProblem
from ifonly.query import Query
from ifonly.result import Budget, Certificate, Result, Stats, Status
from ifonly.rewards import Reward, reward_from_dict
from ifonly.runs.manifest import source_of
from ifonly.runs.rows import FAILED
from ifonly.runs.run import Run, load_run
from ifonly.search.base import Solution
from ifonly.search.build_result import build_result


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A run that can be asked about its episodes; `open_run` makes it."""

    run: Run
    table: pl.DataFrame
    cohort: Cohort
    model: TransitionModel
    """Frozen for search; its standing is the worse of what it is now and what it was to the run."""
    reward: Reward
    behaviour: BehaviourModel | None = None
    """What the run knew of clinicians' choices; None where it did not ask, or where it is gone and can be missed."""

    @cached_property
    def query(self) -> Query:
        """What the run asked about every episode."""
        return Query.from_dict(self.run.manifest["query"], reward=self.reward)

    @property
    def examination(self) -> Examination:
        """What the run had examined, but for what would take as long again: solving every refit.

        Where support would be judged otherwise now, by other limits or without recorded states, the table's words stay.
        """
        asked, now = _examined(self.run), Examination(behaviour=self.behaviour).to_dict()
        alike = all(asked.get(name) == now[name] for name in ("distances", "limits"))
        return Examination(behaviour=self.behaviour if alike else None, sensitivity=bool(asked.get("sensitivity")))

    def problem(self, episode: str) -> BaseProblem:
        """The run's question about one of its episodes; a panel where it was put to the refits of an ensemble."""
        return self.question.about(self.cohort[episode], self.model, self.behaviour)

    def row(self, episode: str) -> dict[str, Any]:
        """The run's row about an episode; one that failed, or that the run is not about, is refused."""
        place = self._places.get(episode)
        if place is None:
            raise InputError(f"{self.run.folder}: this run has no episode {episode!r}; its table lists those it has.")
        row = self.table.row(place, named=True)
        if row["status"] == FAILED:
            raise InputError(f"{self.run.folder}: episode {episode!r} has no answer; {row['reason']}")
        return row

    def result(self, episode: str) -> Result:
        """The run's answer about an episode as a result; what a certificate knew beside its method is not kept."""
        row, problem = self.row(episode), self.problem(episode)
        method, bound = row["certificate"], row["upper_bound"]
        finding = Solution(
            actions=torch.tensor(row["actions"], device=problem.device),
            status=Status(row["status"]),
            upper_bound=math.inf if bound is None else bound,
            certificate=Certificate(method or "none", method is not None, problem.tolerance),
            frontier=tuple(Budget.from_dict(entry) for entry in row["frontier"]),
        )
        with torch.no_grad():
            return build_result(
                problem,
                finding,
                stats=Stats(row["nodes"], model_steps=row["model_steps"], seconds_search=row["seconds"]),
                solver=self.run.manifest["solver"],
                limits=self.run.manifest["limits"],
            )

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {id: place for place, id in enumerate(self.table["episode"])}


def open_run(
    run: Run | str | Path,
    *,
    episodes: Cohort | str | Path | None = None,
    model: TransitionModel | str | Path | None = None,
    behaviour: BehaviourModel | str | Path | None = None,
    reward: Reward | None = None,
) -> OpenedRun:
    """A finished run with its episodes and its model, where it says they lay unless others are given.

    They must be those that the run was about: fingerprints are compared. So must the behaviour model, if it was asked
    about one. A model that failed its check is opened, too: cases say so. `reward` is needed for a run whose reward is
    code, which is not stored.
    """
    found = run if isinstance(run, Run) else load_run(run)
    if not found.is_finished:
        raise InputError(
            f"{found.folder}: this run is not finished; give the same `ifonly cohort` command again to go on with it."
        )
    table = found.table()
    if table.is_empty():
        raise InputError(f"{found.folder}: this run is about no episodes, so there is nothing to show.")
    cohort = _checked_cohort(found, table, _given(found, "episodes", episodes))
    learned = model if isinstance(model, TransitionModel) else load_model(_given(found, "model", model))
    expected = found.manifest["model"].get("fingerprint")
    if learned.fingerprint() != expected:
        raise InputError(
            f"{found.folder}: the model given is not what this run was about (fingerprint {learned.fingerprint()}, not "
            f"{expected}); pass the right one with --model, or solve the cohort again."
        )
    learned.schema.require_same(cohort.schema, here="the model", there="the episodes")
    frozen = learned.for_search()
    frozen.standing = worst_of([learned.standing, _standing(found)])
    return OpenedRun(found, table, cohort, frozen, _reward(found, reward), _behaviour(found, behaviour))


def _standing(run: Run) -> Standing | None:
    """What a check had concluded about the model when the run was made."""
    check = run.manifest.get("model_check")
    return None if check is None else Standing.from_dict(check)


def _examined(run: Run) -> Mapping[str, Any]:
    return run.manifest["question"].get("examination") or {}


def expected_behaviour(run: Run) -> str | None:
    """The fingerprint of the behaviour model that a run was asked about; None where it was asked about none."""
    support = run.manifest["question"].get("support")
    found: str | None = _examined(run).get("behaviour") if support is None else support["behaviour"]
    return found


def _behaviour(run: Run, given: BehaviourModel | str | Path | None) -> BehaviourModel | None:
    """The behaviour model that the run was asked about.

    One that only examined the answers can be missed: the table keeps what it said.
    """
    expected = expected_behaviour(run)
    if expected is None:
        if given is not None:
            raise InputError(f"{run.folder}: this run was not asked about a behaviour model; leave out --behaviour.")
        return None
    if given is None and run.manifest["question"].get("support") is None:
        place = source_of(run.folder, run.manifest, "behaviour")
        if place is None or not place.exists():
            return None
    found = _given(run, "behaviour", given)
    behaviour = found if isinstance(found, BehaviourModel) else load_behaviour(found)
    if behaviour.fingerprint != expected:
        raise InputError(
            f"{run.folder}: the behaviour model given is not what this run was about (fingerprint "
            f"{behaviour.fingerprint}, not {expected}); pass the right one with --behaviour."
        )
    return behaviour


def _reward(run: Run, given: Reward | None) -> Reward:
    stored = run.manifest["question"]["reward"]
    if given is None:
        return reward_from_dict(stored)
    if given.to_dict() != stored:
        raise InputError(f"{run.folder}: the reward given is not the one that this run was asked about.")
    return given


def _given(run: Run, name: str, given: Any) -> Any:
    """What was given, or the place that the run remembers."""
    if given is not None:
        return given
    place = source_of(run.folder, run.manifest, name)
    if place is None:
        raise InputError(f"{run.folder}: this run does not say where its {name} lay; pass --{name} ({name}=...).")
    if not place.exists():
        raise StoreError(f"{run.folder}: its {name} lay in {place}, which is gone; pass --{name} ({name}=...).")
    return place


def _checked_cohort(run: Run, table: pl.DataFrame, given: Cohort | str | Path) -> Cohort:
    """The run's episodes out of a cohort, if they are what they were."""
    cohort = given if isinstance(given, Cohort) else load_cohort(given)
    ids, expected = table["episode"].to_list(), run.manifest["cohort"]["fingerprint"]
    if missing := [id for id in ids if id not in cohort]:
        raise InputError(
            f"{run.folder}: {len(missing)} of the {len(ids)} episodes of this run are not in the cohort given; pass "
            "the cohort that the run was about (--episodes)."
        )
    selected = cohort.select(ids)
    if selected.fingerprint() != expected:
        raise InputError(
            f"{run.folder}: the episodes given are not what this run was about (fingerprint {selected.fingerprint()}, "
            f"not {expected}); pass the right ones with --episodes, or solve the cohort again."
        )
    return selected

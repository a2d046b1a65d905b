"""A finished run together with the episodes and the model that it is about, and the cases that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.plain import repeated
from ifonly.data.store import load_cohort
from ifonly.errors import IfonlyError, InputError, StoreError
from ifonly.evidence import examine, unexamined
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.models.fit import torch_threads
from ifonly.models.standing import worst_of
from ifonly.problem import BaseProblem, build_problem
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Limits, Query
from ifonly.report.cases.build_case import case_of
from ifonly.report.cases.case import Case
from ifonly.result import Alternative, Evidence, Result, Status
from ifonly.result.table import with_check
from ifonly.rewards import Reward
from ifonly.runs.manifest import source_of
from ifonly.runs.run import Run, load_run
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve

STAGE = "cases"


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A run that can be asked about its episodes; `open_run` makes it."""

    run: Run
    cohort: Cohort
    model: TransitionModel
    """Frozen for search; its standing is the worse of what it is now and what it was to the run."""
    query: Query
    """What the run asked about every episode; a model that failed its check may be asked: cases say so."""
    behaviour: BehaviourModel | None = None
    """What the run knew of clinicians' choices; None where it did not ask, or where it is gone and can be missed."""

    @cached_property
    def table(self) -> pl.DataFrame:
        """The run's table, with the model's check as it stands now."""
        return with_check(self.run.table(), self.model.standing)

    @property
    def reward(self) -> Reward:
        """What counts as better, in original units."""
        return self.query.reward

    def problem(self, episode: str) -> BaseProblem:
        """The run's question about one of its episodes."""
        return build_problem(self.cohort[episode], self.model, self.query, support=self.behaviour)

    def result(self, episode: str) -> Result:
        """The run's answer about an episode, with the model's check as it stands now; one that failed is refused."""
        result = self.run.result(episode)
        provenance = replace(result.provenance, query=replace(result.query, reward=self.reward))
        return replace(result, provenance=provenance, evidence=replace(result.evidence, check=self.model.standing))


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
    cohort = _checked_cohort(found, table["episode"].to_list(), _given(found, "episodes", episodes))
    learned = model if isinstance(model, TransitionModel) else load_model(_given(found, "model", model))
    expected = found.manifest["model_fingerprint"]
    if learned.fingerprint() != expected:
        raise InputError(
            f"{found.folder}: the model given is not what this run was about (fingerprint {learned.fingerprint()}, not "
            f"{expected}); pass the right one with --model, or solve the cohort again."
        )
    learned.schema.require_same(cohort.schema, here="the model", there="the episodes")
    frozen = learned.for_search()
    frozen.standing = worst_of([learned.standing, found.check])
    query = Query.from_dict(found.manifest["query"], reward=_reward(found, reward))
    query.reward.bind(cohort.schema, frozen.scaler)  # refuses one that is code and was not given
    return OpenedRun(found, cohort, frozen, replace(query, allow_failed_model=True), _behaviour(found, behaviour))


def expected_behaviour(run: Run) -> str | None:
    """The fingerprint of the behaviour model that a run was asked about; None where it was asked about none."""
    found: str | None = run.manifest["examination"].get("behaviour")
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
    if given is None and run.manifest["query"].get("min_support") is None:
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


def _reward(run: Run, given: Reward | None) -> Reward | None:
    if given is not None and given.to_dict() != run.manifest["query"]["reward"]:
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


def _checked_cohort(run: Run, ids: Sequence[str], given: Cohort | str | Path) -> Cohort:
    """The run's episodes out of a cohort, if they are what they were."""
    cohort = given if isinstance(given, Cohort) else load_cohort(given)
    expected = run.manifest["cohort"]["fingerprint"]
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


def cases_of_run(
    opened: OpenedRun,
    ids: Sequence[str],
    *,
    alternatives: int = 5,
    seconds: float | None = 10.0,
    progress: Progress = silent,
) -> list[Case]:
    """The cases with these ids, in this order, with so many of the best sequences each, the best included.

    Answers are the run's. Where it was not asked for so many sequences, they are solved for, within `seconds`; where
    that takes longer, the run's own are shown. A run's answer that is not proven gives way to one that is.
    """
    if twice := repeated(list(ids)):
        raise InputError(f"episode {twice[0]!r} is asked for more than once.")
    results = [opened.result(id) for id in ids]  # refuses ids without an answer before anything is solved
    apart = int(opened.query.solver.get("apart", 1))
    solver, limits = BranchAndBound(alternatives=alternatives, apart=apart), Limits(seconds=seconds)
    cases = []
    progress(Tick(STAGE, 0, len(ids)))
    with torch_threads(1):
        for done, result in enumerate(results, start=1):
            problem = opened.problem(result.episode)
            if result.provenance.solver.get("alternatives", 1) < alternatives:
                result = _with_alternatives(opened, problem, result, solver, limits)
            shown = result.alternatives[:alternatives] if alternatives > 1 else ()
            cases.append(case_of(problem, replace(result, alternatives=shown)))
            progress(Tick(STAGE, done, len(ids)))
    return cases


def _with_alternatives(
    opened: OpenedRun, problem: BaseProblem, result: Result, solver: BranchAndBound, limits: Limits
) -> Result:
    """The result with alternatives proven to be the best; as it is where these are not found within the limits."""
    found = solve(problem, solver, limits=limits)
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if found.status is not Status.OPTIMAL or not found.certificate.details["alternatives_proven"]:
        return result
    if not result.proven:
        return replace(found, evidence=_examined(opened, problem, found))
    listed = list(found.alternatives)
    if solver.apart > 1 and not np.array_equal(found.actions, result.actions):
        return result  # they lie apart from another one of equals
    if not any(np.array_equal(one.actions, result.actions) for one in listed):  # between equals
        listed = [Alternative(result.actions, result.outcome, result.member_outcomes), *listed[:-1]]
    details = {**result.certificate.details, "alternatives_proven": True}
    return replace(result, alternatives=tuple(listed), certificate=replace(result.certificate, details=details))


def _examined(opened: OpenedRun, problem: BaseProblem, result: Result) -> Evidence:
    """What the run had examined, of an answer that it did not know; refits are only replayed."""
    try:
        return examine(problem, result, behaviour=opened.behaviour, each_refit=False)
    except IfonlyError as error:
        return unexamined(problem, result, error)

"""Runs that remember where their episodes and model lay, and the cases that are made of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import ifonly
from ifonly.constraints import Constraints
from ifonly.data import Cohort, Scaler
from ifonly.errors import InputError, StoreError
from ifonly.models import LinearModel
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.report.cases import case_of, cases_of_run, open_run
from ifonly.rewards import Custom
from ifonly.runs import Run, RunSettings, load_run, solve_cohort
from ifonly.runs.manifest import MANIFEST
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.simulate import simulate_cohort

REWARD = ifonly.minus("SOFA")


def linear_model(cohort: Cohort, seed: int = 0) -> LinearModel:
    generator = torch.Generator().manual_seed(seed)
    actions, size = len(cohort.schema.actions), len(cohort.schema.dynamic)
    matrices = 0.1 * torch.randn(actions, size, size, generator=generator, dtype=torch.float64)
    offsets = 0.2 * torch.randn(actions, size, generator=generator, dtype=torch.float64)
    return LinearModel(cohort.schema, matrices, offsets=offsets, scaler=Scaler.fit(cohort))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cohort, a model and a run about some of the cohort, not to be altered."""
    folder = tmp_path_factory.mktemp("tree")
    cohort = simulate_cohort(8, seed=3, horizon=(3, 5))
    ifonly.save_cohort(cohort, folder / "data" / "cohort")
    ifonly.save_model(linear_model(cohort), folder / "model")
    asked(folder, folder / "runs" / "k2")
    return folder


@pytest.fixture
def own(tree: Path, tmp_path: Path) -> Path:
    """A copy of it somewhere else, to be altered at will."""
    return Path(shutil.copytree(tree, tmp_path / "moved"))


def asked(tree: Path, out: Path, **query: Any) -> Run:
    cohort = ifonly.load(tree / "data" / "cohort")
    sources = {"episodes": tree / "data" / "cohort", "model": tree / "model"}
    return solve_cohort(
        cohort,
        ifonly.load_model(tree / "model"),
        Query(REWARD, 2, **query),
        out=out,
        settings=RunSettings(workers=1, episodes=cohort.ids[1:6], sources=sources),
    )


def manifest_of(tree: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tree / "runs" / "k2" / MANIFEST).read_text())
    return content


def test_a_run_remembers_its_sources_as_seen_from_its_folder(tree: Path, own: Path) -> None:
    assert manifest_of(tree)["sources"] == {"episodes": "../../data/cohort", "model": "../../model"}
    for place in (tree, own):
        opened = open_run(place / "runs" / "k2")
        assert opened.cohort.ids == ifonly.load(tree / "data" / "cohort").ids[1:6]
        assert opened.problem(opened.cohort.ids[0]).max_changes == 2


def test_sources_are_no_part_of_the_question(own: Path, tree: Path) -> None:
    before = load_run(own / "runs" / "k2").table()
    shutil.move(own / "data", own / "elsewhere")
    (own / "data").mkdir()
    shutil.move(own / "elsewhere" / "cohort", own / "data" / "other")
    cohort, model = ifonly.load(own / "data" / "other"), ifonly.load_model(own / "model")
    sources = {"episodes": own / "data" / "other", "model": own / "model"}

    def again(**settings: Any) -> Run:
        settings = {"workers": 1, "episodes": cohort.ids[1:6]} | settings
        out = own / "runs" / "k2"
        return solve_cohort(cohort, model, Query(REWARD, 2), out=out, settings=RunSettings(**settings))

    again()  # says nothing about sources, and leaves them
    assert manifest_of(own)["sources"] == manifest_of(tree)["sources"]
    with pytest.raises(StoreError, match=r"its episodes lay in .*cohort, which is gone; pass --episodes"):
        open_run(own / "runs" / "k2")
    assert open_run(own / "runs" / "k2", episodes=own / "data" / "other").table.equals(before)
    assert again(sources=sources).table().equals(before)
    assert manifest_of(own)["sources"]["episodes"] == "../../data/other"
    assert open_run(own / "runs" / "k2").table.equals(before)


def test_a_run_that_does_not_know_its_sources(own: Path) -> None:
    content = manifest_of(own)
    del content["sources"]
    (own / "runs" / "k2" / MANIFEST).write_text(json.dumps(content))
    run = load_run(own / "runs" / "k2")
    with pytest.raises(InputError, match="does not say where its episodes lay; pass --episodes"):
        open_run(run)
    with pytest.raises(InputError, match="does not say where its model lay; pass --model"):
        open_run(run, episodes=own / "data" / "cohort")
    opened = open_run(run, episodes=ifonly.load(own / "data" / "cohort"), model=ifonly.load_model(own / "model"))
    assert opened.model.is_for_search("cpu")
    assert asked(own, own / "runs" / "k2").manifest["sources"]


def test_other_episodes_and_models_are_refused(own: Path, tmp_path: Path) -> None:
    cohort = ifonly.load(own / "data" / "cohort")
    run = own / "runs" / "k2"
    with pytest.raises(InputError, match=r"5 of the 5 episodes of this run are not in the cohort given"):
        open_run(run, episodes=cohort[6:])
    with pytest.raises(InputError, match="the episodes given are not what this run was about"):
        open_run(run, episodes=simulate_cohort(8, seed=4, horizon=(3, 5)))
    with pytest.raises(InputError, match="the model given is not what this run was about"):
        open_run(run, model=linear_model(cohort, seed=1))
    ifonly.save_model(linear_model(cohort, seed=1), own / "model", overwrite=True)
    with pytest.raises(InputError, match="pass the right one with --model"):
        open_run(run)


def test_runs_that_cannot_be_shown(own: Path, tmp_path: Path) -> None:
    run = own / "runs" / "k2"
    content = manifest_of(own)
    (run / MANIFEST).write_text(json.dumps(content | {"state": "running"}))
    with pytest.raises(InputError, match="this run is not finished; give the same `ifonly cohort` command"):
        open_run(run)
    with pytest.raises(StoreError, match="no run that"):
        open_run(tmp_path)


def test_a_reward_that_is_code_must_be_given(tree: Path, tmp_path: Path) -> None:
    cohort, model = ifonly.load(tree / "data" / "cohort"), ifonly.load_model(tree / "model")
    reward = Custom(lambda states, actions: -states[..., 0] + 0 * actions, {"FiO2": 1.0}, name="oxygen")
    settings = RunSettings(workers=1, episodes=cohort.ids[:1])
    query = Query(reward, 1, solver={"name": "greedy"})
    run = solve_cohort(cohort, model, query, out=tmp_path / "run", settings=settings)
    with pytest.raises(InputError, match="pass reward="):
        open_run(run, episodes=cohort, model=model)
    with pytest.raises(InputError, match="the reward given is not the one"):
        open_run(run, episodes=cohort, model=model, reward=REWARD)
    (case,) = cases_of_run(open_run(run, episodes=cohort, model=model, reward=reward), cohort.ids[:1])
    assert case.answer is not None
    assert case.answer.claim.proven, "solved again, since the run had no proof"


def test_cases_have_the_runs_answers_and_their_alternatives(tree: Path) -> None:
    opened = open_run(tree / "runs" / "k2")
    ids = list(reversed(opened.cohort.ids[:3]))
    ticks: list[Tick] = []
    cases = cases_of_run(opened, ids, alternatives=3, seconds=None, progress=ticks.append)
    assert [case.episode for case in cases] == ids
    assert [(tick.done, tick.total) for tick in ticks] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    for case in cases:
        problem, known = opened.problem(case.episode), opened.run.result(case.episode)
        assert case.answer is not None
        assert list(case.answer.best.actions) == known.actions.tolist()
        assert case.answer.result.stats == known.stats, "nothing that the run knew is solved again"
        best = ifonly.solve(problem, BranchAndBound(alternatives=3))
        listed = [one.outcome for one in case.answer.alternatives]
        assert listed == pytest.approx([problem.reward.show(one.outcome).value for one in best.alternatives])
        assert case.answer.alternatives_proven
    alone = cases_of_run(opened, ids, alternatives=1)
    assert [to_plain(case) for case in alone] == [
        to_plain(case_of(opened.problem(id), opened.result(id))) for id in ids
    ]


def test_what_the_run_knew_is_not_solved_again(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_run(asked(tree, tmp_path / "more", solver={"name": "branch-and-bound", "alternatives": 3}))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("solved again")

    monkeypatch.setattr("ifonly.report.cases.opening.solve", refuse)
    monkeypatch.setattr("ifonly.report.cases.opening.examine", refuse)
    for case in cases_of_run(opened, opened.cohort.ids, alternatives=3):
        known = opened.run.result(case.episode)
        assert case.answer is not None
        assert case.answer.alternatives_proven
        assert [list(one.actions) for one in case.answer.alternatives] == [
            one.actions.tolist() for one in known.alternatives
        ]


def test_an_opened_runs_result_is_what_solve_gives(tree: Path) -> None:
    opened = open_run(tree / "runs" / "k2")
    for id in opened.cohort.ids:
        again, solved = opened.result(id), ifonly.solve(opened.problem(id))
        assert again.actions.tolist() == solved.actions.tolist()
        for name in ("status", "outcome", "upper_bound", "shown"):
            assert getattr(again, name) == getattr(solved, name), name
        assert again.provenance.solver == solved.provenance.solver
        assert again.provenance.model == solved.provenance.model
        assert len(again.frontier) == 3
        assert ifonly.Result.from_json(again.to_json()).outcome == again.outcome


def test_alternatives_that_take_too_long_are_left_out(tree: Path) -> None:
    opened = open_run(tree / "runs" / "k2")
    (case,) = cases_of_run(opened, opened.cohort.ids[:1], seconds=0.0)
    assert case.answer is not None
    assert case.answer.claim.proven, "the run's own proof stands"
    assert case.answer.alternatives == ()


def test_the_question_is_the_runs(tree: Path, tmp_path: Path) -> None:
    rules = Constraints(locked=[0])
    run = asked(tree, tmp_path / "ruled", constraints=rules, change_cost=0.25, limits=Limits(nodes=0))
    opened = open_run(run)
    problem = opened.problem(opened.cohort.ids[0])
    assert (problem.constraints, problem.change_cost) == (rules, 0.25)
    (case,) = cases_of_run(opened, opened.cohort.ids[:1], alternatives=1)
    assert case.answer is not None
    assert not case.answer.claim.proven


def test_ids_without_an_answer_are_refused_before_any_work(tree: Path, tmp_path: Path) -> None:
    opened = open_run(tree / "runs" / "k2")
    ticks: list[Tick] = []
    known = opened.cohort.ids[0]
    with pytest.raises(InputError, match="has no episode 'nobody'"):
        cases_of_run(opened, [known, "nobody"], progress=ticks.append)
    with pytest.raises(InputError, match="more than once"):
        cases_of_run(opened, [known, known], progress=ticks.append)
    assert not ticks
    failed = open_run(asked(tree, tmp_path / "failed", constraints=Constraints(locked=[4])))
    short = next(id for id in failed.cohort.ids if len(failed.cohort[id]) < 5)
    with pytest.raises(InputError, match=f"episode '{short}' has no answer; .*no step 4"):
        cases_of_run(failed, [short])

"""What the server tells of how far to trust answers: the run's, those of live searches, and what reviewers try."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import ifonly
from ifonly.errors import FailedModelError, InputError
from ifonly.evidence.behaviour import load_behaviour, save_behaviour
from ifonly.models.standing import Standing
from ifonly.problem import build_problem
from ifonly.records import from_plain, to_plain
from ifonly.report.cases import Case
from ifonly.text.catalogue import Message
from ifonly.web.api import Desk, JobRequest
from ifonly.web.app import create_app
from ifonly.web.review import Review
from ifonly.web.settings import ReviewSettings
from ifonly.web.turns import Turns
from ifonly.web.worker import Setup, Work, _Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "evidence"))
from random_behaviour import made_behaviour

REWARD = ifonly.minus("SOFA")
SOLVED = 4


@dataclass(frozen=True)
class Ground:
    """Folders of an ensemble, a behaviour model and a run that they examined; beside it the cohort."""

    folder: Path
    cohort: ifonly.Cohort

    def settings(self, notes: Path, **more: Any) -> ReviewSettings:
        places = {name: self.folder / name for name in ("episodes", "model", "run")}
        return ReviewSettings(**{**places, "notes": notes, **more})


@pytest.fixture(scope="module")
def ground(place: Any, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder, cohort = tmp_path_factory.mktemp("ground"), place.cohort
    ifonly.save_cohort(cohort, folder / "episodes")
    untrained = ifonly.LocationScale(cohort.schema, hidden=(6,))
    model = ifonly.fit_ensemble(untrained, cohort, members=3, epochs=1, seed=0)
    ifonly.save_model(model, folder / "model")
    behaviour = made_behaviour(ifonly.Problem.from_episode(cohort[0], model, ifonly.Query(REWARD, 1)), seed=0)
    save_behaviour(behaviour, folder / "behaviour")
    settings = ifonly.RunSettings(workers=1, episodes=cohort.ids[:SOLVED], sources={"behaviour": folder / "behaviour"})
    query = ifonly.Query(REWARD, 1)
    ifonly.solve_cohort(cohort, model, query, out=folder / "run", behaviour=behaviour, settings=settings)
    return Ground(folder, cohort)


@pytest.fixture
def examined(ground: Ground, tmp_path: Path, client_of: Callable[..., Any]) -> Any:
    return client_of(create_app(ground.settings(tmp_path / "notes.sqlite")))


def test_the_list_shows_agreement_and_is_filtered_by_warnings(examined: Any, ground: Ground) -> None:
    assert examined.get("/api/about").json()["run"]["examined"]
    run = ifonly.load_run(ground.folder / "run")
    known_evidence = {id: run.result(id).evidence for id in run.table()["episode"]}

    def listed(**query: Any) -> dict[str, Any]:
        rows = examined.get("/api/episodes", params={"size": 200, **query}).json()["rows"]
        return {row["episode"]: row for row in rows}

    for episode, row in listed().items():
        known = known_evidence.get(episode)
        assert row["refits_agree"] == (known and known.refits and known.refits.share)
        assert (row["refits"], row["warnings"]) == ((3, len(known.warnings)) if known else (None, None))
    clean, warned = listed(warnings="none"), listed(warnings="some")
    assert set(clean) | set(warned) == set(known_evidence)
    assert {row["warnings"] for row in clean.values()} <= {0}
    assert all(row["warnings"] for row in warned.values())
    page = examined.get("/").text
    assert 'id="warnings"' in page
    assert "The model was not checked." in page


def said(message: dict[str, Any]) -> str:
    """A message of the API in words."""
    return str(from_plain(Message, message, what="message"))


def test_a_case_and_what_is_tried_tell_of_support(examined: Any, client: Any, ground: Ground, place: Any) -> None:
    episode = ground.cohort.ids[0]
    case = examined.get("/api/case", params={"episode": episode}).json()
    assert "of 3 refits agree" in said(case["evidence"]["statement"])
    assert len(case["evidence"]["gains"]["improvements"]) == 3
    actions = case["observed"]["actions"]
    actions[1] = (actions[1] + 7) % 25
    tried = examined.post("/api/course", json={"episode": episode, "actions": actions}).json()
    (step,) = (step for step in tried["support"]["steps"] if step["step"] == 1)
    assert "at hour 4" in said(step["messages"][0]).lower()
    same = examined.post("/api/course", json={"episode": episode, "actions": case["observed"]["actions"]}).json()
    assert (same["support"] is None) == (not same["changes"])
    plain = client.post("/api/course", json={"episode": place.cohort.ids[0], "actions": actions}).json()
    assert plain["support"] is None, "there is no behaviour model"


class Deaf:
    """Somebody who orders nothing more, and to whom nothing is sent."""

    server = type("Nobody", (), {"send": lambda *_: None})()

    def is_stopped(self, job: str) -> bool:
        return False


def test_cases_come_back_from_the_api(examined: Any, ground: Ground) -> None:
    for episode in ground.cohort.ids[: SOLVED + 1]:
        content = examined.get("/api/case", params={"episode": episode}).json()
        case = from_plain(Case, content, what="case")
        assert to_plain(case) == content
        if case.answer is not None:
            kept = ifonly.load_run(ground.folder / "run").result(episode)
            assert case.answer.result.own_part() == kept.own_part(), "nothing is lost on the way"


def test_live_answers_are_examined_and_keep_support(ground: Ground) -> None:
    behaviour = load_behaviour(ground.folder / "behaviour")
    fingerprint = ifonly.load_model(ground.folder / "model").fingerprint()
    setup = Setup(ground.folder / "model", fingerprint, behaviour, Standing("pass", (), 24, "c"))
    query = ifonly.Query(REWARD, 1, objective="mean", min_support=0.05, limits=ifonly.Limits(seconds=60.0))
    work = Work(ground.cohort[0], query)
    case = _Bench(setup).solve("job", work, Deaf()).case  # type: ignore[arg-type]
    assert case is not None
    assert case.answer is not None
    assert "for the mean over 3 refits of this model" in str(case.answer.claim.statement)
    assert str(case.evidence.statement).startswith("Uncertain: ")
    assert " Model check: pass; " in str(case.evidence.statement)
    assert case.evidence.examined == bool(case.answer.best.changes)
    assert any("at least 5 % of situations" in str(rule) for rule in case.question.rules)
    alone = replace(work, query=replace(query, objective=None, min_support=None))
    case = _Bench(replace(setup, standing=None)).solve("job", alone, Deaf()).case  # type: ignore[arg-type]
    assert case is not None
    assert case.answer is not None
    assert " The model was not checked; " in str(case.evidence.statement)
    assert case.evidence.gains is not None
    assert len(case.evidence.gains.improvements) == 3
    assert case.evidence.support is not None
    assert case.evidence.support.steps


def test_an_episode_is_abducted_once_whatever_the_rules(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def counting(episode: Any, *arguments: Any, **more: Any) -> Any:
        built.append(episode.id)
        return build_problem(episode, *arguments, **more)

    monkeypatch.setattr("ifonly.web.worker.build_problem", counting)
    fingerprint = ifonly.load_model(ground.folder / "model").fingerprint()
    bench = _Bench(Setup(ground.folder / "model", fingerprint))
    query = ifonly.Query(REWARD, 1, limits=ifonly.Limits(seconds=60.0))
    for most, rules in ((1, {}), (1, {"locked": [0]}), (2, {"locked": [1]}), (1, {})):
        asked = replace(query, max_changes=most, constraints=ifonly.Constraints.from_dict(rules))
        news = bench.solve("job", Work(ground.cohort[0], asked), Deaf())  # type: ignore[arg-type]
        assert news.case is not None
        assert news.case.answer is not None
        assert news.case.answer.result.query.constraints == asked.constraints
        fresh = ifonly.solve(build_problem(ground.cohort[0], bench._model, asked))
        assert news.case.answer.result.outcome == pytest.approx(fresh.outcome, abs=1e-7)
    assert built == [ground.cohort[0].id]


@pytest.mark.parametrize("solver", [{"name": "branch-and-bound", "within": 0.25}, {"name": "greedy"}], ids=str)
def test_live_searches_keep_the_limits_of_the_query(ground: Ground, solver: dict[str, Any]) -> None:
    """Of its limits reviewers may ask for less time; branch and bound, which they use, keeps its settings."""
    limits = ifonly.Limits(seconds=30.0, nodes=1, gap=0.5, memory=512.0)
    query = ifonly.Query(REWARD, 1, limits=limits, solver=solver)
    model = ifonly.load_model(ground.folder / "model").for_search()
    review = Review(ground.cohort, model, query)
    desk = Desk(review, None, None, 60.0, signs_in=False, turns=Turns())  # type: ignore[arg-type]
    work = desk.work(JobRequest(episode=ground.cohort.ids[0], max_changes=3, alternatives=2, seconds=10.0))
    assert work.query.limits == replace(limits, seconds=10.0)
    own = {"within": 0.25} if solver["name"] == "branch-and-bound" else {}
    assert work.query.solver == {"name": "branch-and-bound", "alternatives": 2, **own}
    news = _Bench(Setup(ground.folder / "model", model.fingerprint())).solve("job", work, Deaf())  # type: ignore[arg-type]
    assert news.case is not None
    assert news.case.answer is not None
    assert news.case.answer.result.status is ifonly.Status.NODE_LIMIT


def test_a_failed_model_needs_permission_and_is_named_on_every_page(
    ground: Ground, tmp_path: Path, client_of: Callable[..., Any]
) -> None:
    model = Path(shutil.copytree(ground.folder / "model", tmp_path / "model"))
    findings = [{"kind": "noise_by_action", "level": "fail"}]
    check = {"verdict": "fail", "findings": findings, "episodes": 24, "cohort": "c", "figures": {"features": []}}
    (model / "check.json").write_text(json.dumps(check | {"model": ifonly.load_model(model).fingerprint()}))
    settings = ground.settings(tmp_path / "notes.sqlite", model=model)
    with pytest.raises(FailedModelError, match="--allow-failed-model"):
        Review.load(settings)
    with pytest.raises(FailedModelError, match="--allow-failed-model"):
        Review.load(replace(settings, run=None, query=ifonly.Query(REWARD)))
    client = client_of(create_app(replace(settings, allow_failed_model=True)))
    assert "<strong>Caution.</strong> The model failed its check" in client.get("/").text
    case = client.get("/api/case", params={"episode": ground.cohort.ids[0]}).json()
    assert "It was asked all the same" in said(case["model"]["caution"])
    assert case["model"]["check"]["verdict"] == "fail"


def test_support_takes_a_behaviour_model(ground: Ground, tmp_path: Path) -> None:
    query = ifonly.Query(REWARD, min_support=0.05)
    with pytest.raises(InputError, match="pass one \\(--behaviour\\)"):
        ground.settings(tmp_path / "n", run=None, query=query)
    review = Review.load(ground.settings(tmp_path / "n", run=None, query=query, behaviour=ground.folder / "behaviour"))
    assert review.problem(ground.cohort.ids[0]).support is not None

"""What the server tells of how far to trust answers: the run's, those of live searches, and what reviewers try."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ifonly
from ifonly.cases.question import CaseQuestion
from ifonly.errors import FailedModelError, InputError
from ifonly.evidence.behaviour import load_behaviour, save_behaviour
from ifonly.models.standing import Standing
from ifonly.web.app import create_app
from ifonly.web.review import Review
from ifonly.web.settings import ReviewSettings
from ifonly.web.worker import Setup, Work, _Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "trust"))
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
    settings = ifonly.RunSettings(
        workers=1,
        episodes=cohort.ids[:SOLVED],
        behaviour=behaviour,
        sources={"behaviour": folder / "behaviour"},
    )
    ifonly.solve_cohort(cohort, model, REWARD, max_changes=1, out=folder / "run", settings=settings)
    return Ground(folder, cohort)


@pytest.fixture
def examined(ground: Ground, tmp_path: Path, client_of: Callable[..., Any]) -> Any:
    return client_of(create_app(ground.settings(tmp_path / "notes.sqlite")))


def test_the_list_shows_agreement_and_is_filtered_by_warnings(examined: Any, ground: Ground) -> None:
    assert examined.get("/api/about").json()["run"]["examined"]
    table = {row["episode"]: row for row in ifonly.load_run(ground.folder / "run").table().to_dicts()}

    def listed(**query: Any) -> dict[str, Any]:
        rows = examined.get("/api/episodes", params={"size": 200, **query}).json()["rows"]
        return {row["episode"]: row for row in rows}

    for episode, row in listed().items():
        known = table.get(episode)
        assert row["refits_agree"] == (known and known["refits_agree"])
        assert (row["refits"], row["warnings"]) == ((3, len(known["warnings"])) if known else (None, None))
    clean, warned = listed(warnings="none"), listed(warnings="some")
    assert set(clean) | set(warned) == set(table)
    assert {row["warnings"] for row in clean.values()} <= {0}
    assert all(row["warnings"] for row in warned.values())
    page = examined.get("/").text
    assert 'id="warnings"' in page
    assert "The model was not checked." in page


def test_a_case_is_told_by_the_limits_of_its_run(ground: Ground, tmp_path: Path) -> None:
    review = Review.load(ground.settings(tmp_path / "notes.sqlite"))
    assert review.run is not None
    assert review._table is not None
    review.run.manifest["question"]["examination"]["limits"]["far"] = 80.0
    last = review._table.with_columns(unsupported_steps=pl.concat_list(pl.col("horizon") - 1))
    review._table = last.with_columns(pl.col("change_support").list.eval(pl.lit(0.5)))
    (*_, step) = review.case(ground.cohort.ids[0])["trust"]["support"]["steps"]
    assert "farther from the data than 80 % of recorded states" in step["words"][0]


def test_a_case_and_what_is_tried_tell_of_support(examined: Any, client: Any, ground: Ground, place: Any) -> None:
    episode = ground.cohort.ids[0]
    case = examined.get("/api/case", params={"episode": episode}).json()
    assert "of 3 refits agree" in case["trust"]["statement"]
    assert len(case["trust"]["refits"]["improvements"]) == 3
    actions = case["observed"]["actions"]
    actions[1] = (actions[1] + 7) % 25
    tried = examined.post("/api/course", json={"episode": episode, "actions": actions}).json()
    (step,) = (step for step in tried["support"]["steps"] if step["changed"])
    assert step["step"] == 1
    assert "at hour 4" in step["words"][0].lower()
    same = examined.post("/api/course", json={"episode": episode, "actions": case["observed"]["actions"]}).json()
    assert (same["support"] is None) == (not same["changes"])
    plain = client.post("/api/course", json={"episode": place.cohort.ids[0], "actions": actions}).json()
    assert plain["support"] is None, "there is no behaviour model"


class Deaf:
    """Somebody who orders nothing more, and to whom nothing is sent."""

    server = type("Nobody", (), {"send": lambda *_: None})()

    def is_stopped(self, job: str) -> bool:
        return False


def test_live_answers_are_examined_and_keep_support(ground: Ground) -> None:
    behaviour = load_behaviour(ground.folder / "behaviour")
    fingerprint = ifonly.load_model(ground.folder / "model").fingerprint()
    standing = Standing("pass", "pass: fine", 24, "c")
    question = CaseQuestion(REWARD, max_changes=1, objective="mean", min_support=0.05)
    setup = Setup(ground.folder / "model", fingerprint, question, behaviour, standing)
    work = Work(ground.cohort[0], 1, None, 2, 60.0)
    message = _Bench(setup).solve("job", work, Deaf())  # type: ignore[arg-type]
    case = message.case
    assert case is not None
    assert "for the mean over 3 refits of this model" in case["answer"]["statement"]
    assert case["trust"]["statement"].startswith("Model check: pass. ")
    assert case["trust"]["examined"] == bool(case["answer"]["best"]["changes"])
    assert any("at least 5 % of situations" in rule for rule in case["question"]["rules"])
    alone = replace(setup, question=replace(question, objective=None, min_support=None), standing=None)
    case = _Bench(alone).solve("job", work, Deaf()).case  # type: ignore[arg-type]
    assert case is not None
    assert case["trust"]["statement"].startswith("The model was not checked; ")
    assert {case["trust"]["refits"]["refits"], len(case["trust"]["refits"]["improvements"])} == {3}
    assert case["trust"]["support"]["steps"]


def test_a_failed_model_needs_permission_and_is_named_on_every_page(
    ground: Ground, tmp_path: Path, client_of: Callable[..., Any]
) -> None:
    model = Path(shutil.copytree(ground.folder / "model", tmp_path / "model"))
    check = Standing("fail", "fail: of 9 checks 2 failed", 24, "c").to_dict()
    (model / "check.json").write_text(json.dumps(check | {"model": ifonly.load_model(model).fingerprint()}))
    settings = ground.settings(tmp_path / "notes.sqlite", model=model)
    with pytest.raises(FailedModelError, match="--allow-failed-model"):
        Review.load(settings)
    with pytest.raises(FailedModelError, match="--allow-failed-model"):
        Review.load(replace(settings, run=None, question=CaseQuestion(REWARD)))
    client = client_of(create_app(replace(settings, allow_failed_model=True)))
    assert "<strong>Caution.</strong> The model failed its check" in client.get("/").text
    case = client.get("/api/case", params={"episode": ground.cohort.ids[0]}).json()
    assert "It was asked all the same" in case["model"]["caution"]
    assert case["model"]["check"]["verdict"] == "fail"


def test_support_takes_a_behaviour_model(ground: Ground, tmp_path: Path) -> None:
    question = CaseQuestion(REWARD, min_support=0.05)
    with pytest.raises(InputError, match="pass one \\(--behaviour\\)"):
        ground.settings(tmp_path / "n", run=None, question=question)
    review = Review.load(
        ground.settings(tmp_path / "n", run=None, question=question, behaviour=ground.folder / "behaviour")
    )
    assert review.problem(ground.cohort.ids[0]).support is not None

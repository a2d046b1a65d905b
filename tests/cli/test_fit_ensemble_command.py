"""`ifonly fit --ensemble`, and what `info` says about its folder."""

import json
from pathlib import Path

import pytest
from effort import long

from ifonly.models import Ensemble, load_model
from ifonly.models.effects import SubjectEffectModel
from ifonly.records import to_plain


def test_fit_makes_an_ensemble_that_info_describes(
    run, cohort_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ensemble"
    command = (
        "fit",
        "--recipe",
        "paper",
        "--episodes",
        cohort_folder,
        "--out",
        out,
        "--epochs",
        2,
        "--hidden",
        16,
        "--ensemble",
        3,
    )
    made = run(*command)
    assert made.exit_code == 0, made.output
    assert "3 location-scale members: validation loss" in made.stdout
    assert "note: " in made.stdout
    model = load_model(out)
    assert isinstance(model, Ensemble)
    assert len(model) == 3
    centre, alone = model.fit_report, load_model(model_folder).fit_report
    assert (centre.training, centre.seed) == (alone.training, alone.seed)

    described = run("info", out)
    assert "ensemble model" in described.stdout
    assert "3 location-scale members" in described.stdout
    content = json.loads(run("info", out, "--json").stdout)
    assert content["kind"] == "ensemble"
    assert set(content["exact_norms"]) == {"location", "scale"}
    assert len(content["fit_report"]["members"]) == 3
    assert content["fit_report"]["notes"] == [to_plain(note) for note in model.notes]


def test_fit_as_json(run, cohort_folder: Path, tmp_path: Path) -> None:
    command = (
        "fit",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        1,
        "--hidden",
        8,
    )
    content = json.loads(run(*command, "--ensemble", 2, "--kind", "additive", "--json").stdout)
    assert content["fingerprint"] == load_model(tmp_path / "m").fingerprint()
    assert [report["seed"] for report in content["fit_report"]["members"]] == [
        member.fit_report.seed for member in load_model(tmp_path / "m")
    ]


def test_an_ensemble_answers_queries(run, cohort_folder: Path, tmp_path: Path) -> None:
    command = (
        "fit",
        "--recipe",
        "paper",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        1,
        "--hidden",
        8,
    )
    assert run(*command, "--ensemble", 2).exit_code == 0
    asked = ("--episodes", cohort_folder, "--model", tmp_path / "m", "--only", "patient-00001", "-k", 1)
    solved = run("solve", *asked)
    assert solved.exit_code == 0, solved.output


def test_no_members_are_refused(run, cohort_folder: Path, tmp_path: Path) -> None:
    assert (
        run("fit", "--recipe", "paper", "--episodes", cohort_folder, "--out", tmp_path / "m", "--ensemble", 0).exit_code
        == 2
    )


@long
def test_kinds_are_the_default_where_recipes_are_compared(
    run, cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ifonly.evidence.recipe_losses.ASKED", 1)
    monkeypatch.setattr("ifonly.evidence.recipe_losses.PATIENCE", 0.1)
    command = ("fit", "--episodes", cohort_folder, "--out", tmp_path / "m", "--epochs", 1, "--hidden", 4)
    made = run(*command)
    assert made.exit_code == 0, made.output
    assert "14 members of 7 kinds, each kind fitted to either half of the subjects; weights " in made.stdout
    assert "ensemble stored in" in made.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"], "the journal and its models are gone"
    model = load_model(tmp_path / "m")
    assert isinstance(model, Ensemble)
    kinds = ["paper", "plain", "plain-tails", "residual", "residual-tails", "narrow", "partial"]
    assert [label.kind for label in model.labels] == [kind for kind in kinds for _ in range(2)]
    described = run("info", tmp_path / "m")
    assert "14 members of 7 kinds" in described.stdout
    assert "settings: members 14, centre True, of " in described.stdout
    alone = run(*command[:4], tmp_path / "one", *command[5:], "--recipe", "paper", "--ensemble", "none")
    assert alone.exit_code == 0, alone.output
    assert not isinstance(load_model(tmp_path / "one"), Ensemble)


def test_what_members_cannot_be_is_refused_in_words(run, cohort_folder: Path, tmp_path: Path) -> None:
    command = ("fit", "--episodes", cohort_folder, "--out", tmp_path / "m")
    for wrong in ("many", "-3", "2.5", "0"):
        found = run(*command, "--ensemble", wrong)
        assert found.exit_code == 2
        assert "give kinds, none, or a number of members" in " ".join(found.output.split())
    own = run(*command, "--ensemble", "kinds", "--kind", "additive")
    assert own.exit_code == 2
    assert "goes with a recipe" in " ".join(own.output.split())


def test_fit_with_subject_effects(run, cohort_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "effects"
    options = (
        "--recipe",
        "paper",
        "--episodes",
        cohort_folder,
        "--epochs",
        2,
        "--hidden",
        8,
        "--set",
        "subject_effect=true",
    )
    made = run("fit", *options, "--out", out)
    assert made.exit_code == 0, made.output
    assert "share of the noise's variance that lies between them" in made.stdout
    model = load_model(out)
    assert isinstance(model, SubjectEffectModel)
    assert len(model.fit_report.effects) == model.state_size
    content = json.loads(run("info", out, "--json").stdout)
    assert content["kind"] == "subject-effect"
    assert set(content["exact_norms"]) == {"location", "scale"}
    assert content["fit_report"]["effects"][0]["feature"] == model.schema.dynamic[0].name
    assert run("fit", *options[:-1], "subject_effect=perhaps", "--out", out).exit_code == 2
    decided = run("fit", *options[:-1], "subject_effect=auto", "--out", tmp_path / "decided")
    assert decided.exit_code == 0, decided.output
    assert "  subjects    " in decided.stdout
    choice = load_model(tmp_path / "decided").fit_report.effect_choice
    assert choice is not None
    assert isinstance(load_model(tmp_path / "decided"), SubjectEffectModel) == choice.chosen
    refits = run("fit", *options, "--out", tmp_path / "refits", "--ensemble", 2)
    assert refits.exit_code == 0, refits.output
    assert load_model(tmp_path / "refits").context_size == model.context_size

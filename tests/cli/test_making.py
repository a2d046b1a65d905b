"""Commands that make cohorts and models, and `info`, which says what they made."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import ifonly
from ifonly.cli.learning import Kind
from ifonly.data.store import load_cohort
from ifonly.data.tables import cohort_to_frame
from ifonly.report.overview import Overview
from ifonly.study.plan import MODELS, FitPlan


def test_simulate_stores_what_the_library_simulates(cohort_folder: Path) -> None:
    stored, made = load_cohort(cohort_folder), ifonly.simulate.simulate_cohort(40, seed=3, horizon=6)
    assert stored.ids == made.ids
    assert np.array_equal(stored.states, made.states)
    assert np.array_equal(stored.actions, made.actions)


def test_simulate_as_json(run, tmp_path: Path) -> None:
    result = run("simulate", "--patients", 5, "--horizon", "4-7", "--out", tmp_path / "c", "--json")
    content = json.loads(result.stdout)
    lengths = load_cohort(tmp_path / "c").lengths
    assert result.exit_code == 0, result.output
    assert set(content) == {"cohort", "provenance", "summary"}
    assert content["provenance"] == {"made by": "ifonly simulate", "patients": 5, "seed": 0, "horizon": [4, 7]}
    assert (content["summary"]["episodes"], content["summary"]["steps"]) == (5, lengths.sum())
    assert 4 <= lengths.min() <= lengths.max() <= 7


def test_nothing_is_replaced_without_force(run, tmp_path: Path) -> None:
    command = ("simulate", "--patients", 5, "--horizon", 4, "--out", tmp_path / "c")
    assert run(*command).exit_code == 0
    before = load_cohort(tmp_path / "c")
    refused = run(*command, "--seed", 9)
    assert refused.exit_code == 3
    assert "--force" in refused.stderr
    assert np.array_equal(load_cohort(tmp_path / "c").states, before.states)
    assert run(*command, "--seed", 9, "--force").exit_code == 0
    assert not np.array_equal(load_cohort(tmp_path / "c").states, before.states)


def test_force_does_not_delete_other_things(run, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "diary.txt").write_text("dear diary")
    result = run("simulate", "--patients", 5, "--horizon", 4, "--out", tmp_path / "c", "--force")
    assert result.exit_code == 3
    assert "diary.txt" in result.stderr
    assert (tmp_path / "c" / "diary.txt").read_text() == "dear diary"


def test_split_keeps_subjects_together(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = tmp_path / "parts"
    command = ("split", "--episodes", cohort_folder, "--out", out, "--test", 0.25, "--seed", 2)
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    train, test = load_cohort(cohort_folder).split(test=0.25, seed=2)
    for name, part in (("train", train), ("test", test)):
        assert load_cohort(out / name).fingerprint() == part.fingerprint()
        assert json.loads(result.stdout)[name]["episodes"] == len(part)
    assert run(*command).exit_code == 3
    assert f"ifonly fit --episodes {out / 'train'}" in run(*command, "--force").stdout
    assert f"cohorts in it: {out / 'train'}, {out / 'test'}." in run("info", out).stderr
    assert "--test 1.5" in run(*command[:-4], "--test", 1.5, "--force").stderr


def test_pool_undoes_a_split_and_names_part_what_has_the_same_ids(run, tmp_path: Path, cohort_folder: Path) -> None:
    cohort, out = load_cohort(cohort_folder), tmp_path / "pooled"
    assert run("split", "--episodes", cohort_folder, "--out", tmp_path / "parts").exit_code == 0
    parts = [tmp_path / "parts" / name for name in ("train", "test")]
    result = run("pool", *parts, out, "--json")
    assert result.exit_code == 0, result.output
    assert load_cohort(out).select(cohort.ids).fingerprint() == cohort.fingerprint()
    assert json.loads(result.stdout)["summary"]["episodes"] == len(cohort)
    assert run("pool", *parts, out).exit_code == 3
    refused = run("pool", cohort_folder, cohort_folder, tmp_path / "twice")
    assert refused.exit_code == 3
    assert f"{len(cohort)} ids of episodes are in more than one cohort" in refused.stderr
    named = run("pool", f"north={cohort_folder}", f"south={cohort_folder}", tmp_path / "twice")
    assert named.exit_code == 0, named.output
    both = load_cohort(tmp_path / "twice")
    assert (len(both), len(set(both.subjects))) == (2 * len(cohort), 2 * len(set(cohort.subjects)))
    assert both[f"south-{cohort.ids[0]}"].states.tolist() == cohort[0].states.tolist()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_import_gives_the_cohort_back(run, tmp_path: Path, cohort_folder: Path, ending: str) -> None:
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort)
    table = tmp_path / f"table.{ending}"
    frame.write_csv(table) if ending == "csv" else frame.write_parquet(table)
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    result = run("import", table, "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "mine", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["provenance"]["table"] == table.name
    assert np.array_equal(load_cohort(tmp_path / "mine").states, cohort.states)


def test_implausible_values_are_one_friendly_line(run, tmp_path: Path, cohort_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort)
    frame[0, "MAP"] = 300.0
    frame.write_csv(tmp_path / "table.csv")
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    result = run("import", tmp_path / "table.csv", "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "mine")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: ")
    assert "MAP" in result.stderr
    assert "Warning" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_nothing_printed_gives_a_single_subject_away(run, tmp_path: Path, cohort_folder: Path) -> None:
    """The one patient with an extreme value is in the mean, and nowhere else."""
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort)
    frame[0, "creatinine"] = secret = 8.87654321
    assert secret == frame["creatinine"].max()
    frame.write_csv(tmp_path / "table.csv")
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    command = ("import", tmp_path / "table.csv", "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "mine")
    for arguments in ((*command, "--force"), (*command, "--force", "--json"), ("info", tmp_path / "mine")):
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert "creatinine" in result.stdout
        assert "8.87" not in result.output


def test_import_names_the_place_of_a_bad_cell_and_not_what_it_holds(run, tmp_path: Path, cohort_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort).with_columns(MAP=pl.col("MAP").cast(pl.String))
    frame[8, "MAP"] = "SECRET"
    frame.write_csv(tmp_path / "table.csv")
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    result = run("import", tmp_path / "table.csv", "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "mine")
    assert result.exit_code == 3
    assert "table.csv: row 9, step 2: MAP is not a number" in result.stderr
    assert "SECRET" not in result.output
    assert cohort.ids[1] not in result.output


def test_fit_makes_the_model_that_was_asked_for(cohort_folder: Path, model_folder: Path) -> None:
    model = ifonly.load_model(model_folder)
    assert model.settings() == {"hidden": [16], "activation": "tanh", "prior": "gaussian", "lipschitz": [1.0, 0.1]}
    cohort = load_cohort(cohort_folder)
    wanted = ifonly.LocationScale(cohort.schema, hidden=(16,), lipschitz=(1.0, 0.1))
    assert model.fingerprint() == ifonly.fit(wanted, cohort, epochs=2, seed=0).fingerprint()


@pytest.mark.parametrize(
    ("options", "kind", "limits"),
    [
        (["--lipschitz", "none"], "location-scale", None),
        (["--lipschitz", "0.9,none"], "location-scale", [0.9, None]),
        (["--kind", "additive"], "additive", 1.0),
        (["--kind", "additive", "--lipschitz", "none"], "additive", None),
        (["--kind", "post-nonlinear", "--lipschitz", "0.8"], "post-nonlinear", 0.8),
        (["--kind", "monotone-flow"], "monotone-flow", [1.0, 0.1, 0.1, 0.1]),
    ],
)
def test_fit_of_every_kind(run, tmp_path: Path, cohort_folder: Path, options: list[str], kind: str, limits) -> None:
    command = [
        "fit",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        1,
        "--hidden",
        "4,4",
        "--json",
    ]
    result = run(*command, "--set", "prior=laplace", *options)
    assert result.exit_code == 0, result.output
    content, model = json.loads(result.stdout), ifonly.load_model(tmp_path / "m")
    assert set(content) == {"model", "fingerprint", "fit_report"}
    assert content["fingerprint"] == model.fingerprint()
    assert len(content["fit_report"]["training_loss"]) == 1
    assert model.kind == kind
    settings = model.settings()
    assert (settings["lipschitz"], settings["hidden"], settings["prior"]) == (limits, [4, 4], "laplace")


def test_fit_draws_its_losses(run, tmp_path: Path, cohort_folder: Path) -> None:
    command = [
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
        4,
    ]
    assert run(*command, "--plot", tmp_path / "loss.png").exit_code == 0
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_every_kind_has_as_many_limits_as_its_model_takes() -> None:
    schema = ifonly.simulate.sepsis_schema()
    assert {kind.value for kind in Kind} == set(MODELS)
    for kind, (_, limits) in MODELS.items():
        assert FitPlan("own", kind, limits, (4,)).untrained(schema).kind == kind


def test_crossval_resumes(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = tmp_path / "table.json"
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--epochs", 1, "--hidden", 4, "--out", out]
    first = run(*command, "--location", "1.0", "--scale", "0.1", "--json")
    assert first.exit_code == 0, first.output
    content = json.loads(first.stdout)
    assert content == json.loads(out.read_text())
    assert [row["limits"] for row in content["rows"]] == [None, [1.0, 0.1]]
    journal = out.with_name("table.json.journal")
    before = journal.read_bytes()
    again = run(*command, "--location", "1.0,0.8", "--scale", "0.1")
    assert again.exit_code == 0, again.output
    assert journal.read_bytes().startswith(before), "finished fits were done again"
    assert len(journal.read_text().splitlines()) == 1 + 3 * 2
    assert json.loads(out.read_text())["rows"][1] == content["rows"][1]
    assert run("info", out).stdout == again.stdout.replace(f"table written to {out}\n", "")


def test_crossval_refuses_and_starts_again(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = tmp_path / "table.json"
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--hidden", 4, "--out", out]
    command += ["--location", "1.0", "--scale", "0.1"]
    out.write_text("somebody else's file")
    assert run(*command, "--epochs", 1).exit_code == 3
    assert out.read_text() == "somebody else's file"
    assert run(*command, "--epochs", 1, "--force").exit_code == 0
    other = run(*command, "--epochs", 2)
    assert other.exit_code == 3
    assert "another cross-validation" in other.stderr
    assert run(*command, "--epochs", 2, "--force").exit_code == 0
    assert json.loads(out.read_text())["plan"]["fit"]["epochs"] == 2


def test_info_on_a_cohort(run, cohort_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    assert str(Overview.of(cohort)) in run("info", cohort_folder).stdout
    content = json.loads(run("info", cohort_folder, "--json").stdout)
    assert content["holds"] == "cohort"
    assert content["summary"]["episodes"] == 40
    assert ifonly.Schema.from_dict(content["schema"]) == cohort.schema


def test_info_on_a_model(run, model_folder: Path) -> None:
    text = run("info", model_folder).stdout
    content = json.loads(run("info", model_folder, "--json").stdout)
    model = ifonly.load_model(model_folder)
    assert "location-scale model" in text
    assert str(model.fit_report) in text
    assert (content["holds"], content["kind"]) == ("model", "location-scale")
    assert content["exact_norms"]["location"] == pytest.approx(1.0, abs=1e-6)
    assert content["exact_norms"]["scale"] == pytest.approx(0.1, abs=1e-6)
    assert content["fingerprint"] == model.fingerprint()
    assert content["provenance"]["cohort"]["provenance"]["seed"] == 3


def test_crossval_does_not_replace_a_table_of_another_model(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = tmp_path / "table.json"
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--epochs", 1, "--out", out]
    command += ["--location", "1.0", "--scale", "0.1"]
    assert run(*command, "--hidden", 4).exit_code == 0
    before = out.read_bytes()
    settings = json.loads(before)["provenance"]["model"]["settings"]
    assert (settings["hidden"], settings["activation"], settings["prior"]) == ([4], "tanh", "gaussian")
    for change in (["--hidden", 3], ["--hidden", 4, "--location", "0.5"]):
        refused = run(*command, *change)
        assert refused.exit_code == 3
        assert "--force" in refused.stderr
        assert out.read_bytes() == before
    assert run(*command, "--hidden", 3, "--force").exit_code == 0
    assert json.loads(out.read_text())["provenance"]["model"]["settings"]["hidden"] == [3]


def test_crossval_does_not_replace_a_table_that_its_journal_did_not_make(
    run, tmp_path: Path, cohort_folder: Path
) -> None:
    out = tmp_path / "table.json"
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--epochs", 1, "--hidden", 4, "--out", out]
    command += ["--location", "1.0", "--scale", "0.1"]
    assert run(*command).exit_code == 0
    for content in ("somebody else's file", "[]", "{}"):
        out.write_text(content)
        refused = run(*command)
        assert refused.exit_code == 3
        assert "--force" in refused.stderr
        assert out.read_text() == content
    out.unlink()
    assert run(*command).exit_code == 0


def test_a_damaged_journal_can_be_started_again(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = tmp_path / "table.json"
    (tmp_path / "table.json.journal").write_text("my notes\n")
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--epochs", 1, "--hidden", 4, "--out", out]
    command += ["--location", "1.0", "--scale", "0.1"]
    refused = run(*command)
    assert refused.exit_code == 3
    assert "--force" in refused.stderr
    assert run(*command, "--force").exit_code == 0


def test_damaged_lines_of_a_journal_are_named(run, tmp_path: Path, cohort_folder: Path) -> None:
    out, journal = tmp_path / "table.json", tmp_path / "table.json.journal"
    command = ["crossval", "--episodes", cohort_folder, "--set", "folds=2", "--epochs", 1, "--hidden", 4, "--out", out]
    command += ["--location", "1.0", "--scale", "0.1"]
    first = run(*command)
    assert first.exit_code == 0
    assert "damaged" not in first.stderr
    lines = journal.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("1", "2")
    journal.write_text("".join(lines))
    again = run(*command)
    assert again.exit_code == 0
    assert f"{journal}: line 3 was damaged or altered" in again.stderr
    assert again.stdout == first.stdout


@pytest.mark.parametrize("first", [0, 1])
def test_import_says_how_steps_are_counted(run, tmp_path: Path, cohort_folder: Path, first: int) -> None:
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort)
    frame.with_columns(step=frame["step"] + first).write_csv(tmp_path / "table.csv")
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    command = ("import", tmp_path / "table.csv", "--schema", tmp_path / "schema.yaml", "--out", tmp_path / "mine")
    result = run(*command, "--json")
    note = "note: step 1 of the table is shown as step 0 everywhere.\n"
    assert result.stderr == (note if first == 1 else "")
    assert json.loads(result.stdout)["provenance"]["first step of the table"] == first


def test_implausible_values_are_reported_where_values_matter(
    run, tmp_path: Path, cohort_folder: Path, model_folder: Path
) -> None:
    frame = cohort_to_frame(load_cohort(cohort_folder))
    frame[0, "MAP"] = 300.0
    frame.write_csv(tmp_path / "table.csv")
    ifonly.save_schema(load_cohort(cohort_folder).schema, tmp_path / "schema.yaml")
    odd = tmp_path / "odd"
    fit = ("fit", "--recipe", "paper", "--episodes", odd, "--out", tmp_path / "m", "--epochs", 1, "--hidden", 4)
    for command in (("import", tmp_path / "table.csv", "--schema", tmp_path / "schema.yaml", "--out", odd), fit):
        assert "MAP 1" in run(*command).stderr
    assert "MAP 1" in run("info", odd).stderr
    answer = tmp_path / "answer.json"
    solve = ("solve", "--episodes", odd, "--model", model_folder, "--only", "patient-00001", "-k", 1)
    for quiet in (
        (*solve, "--out", answer),
        ("verify", answer, "--episodes", odd, "--model", model_folder),
    ):
        result = run(*quiet)
        assert (result.exit_code, result.stderr) == (0, "")


def test_import_remarks_on_values_that_look_carried_forward(run, tmp_path: Path, cohort_folder: Path) -> None:
    """It names them and says what to write; `measured: auto` settles it."""
    cohort = load_cohort(cohort_folder)
    frame = cohort_to_frame(cohort)
    held = pl.col("platelets").first().over("episode", (pl.col("step") // 4).alias("block"))
    frame.with_columns(held).write_csv(tmp_path / "table.csv")
    schema = tmp_path / "schema.yaml"
    ifonly.save_schema(cohort.schema, schema)
    command = ("import", tmp_path / "table.csv", "--schema", schema, "--out", tmp_path / "mine", "--force")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "platelets: most values exactly repeat the one before" in result.stderr
    assert "measured: {platelets: COLUMN}" in result.stderr
    assert load_cohort(tmp_path / "mine").origins is None
    schema.write_text(schema.read_text() + "table: {measured: auto}\n")
    settled = run(*command)
    assert "repeat" not in settled.stderr
    assert load_cohort(tmp_path / "mine").origins is not None


def test_import_refuses_impossible_doses(run, tmp_path: Path, cohort_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    doses = np.array(cohort.schema.actions.vectors)[cohort.actions]
    frame = cohort_to_frame(cohort).drop("action").with_columns(vaso=pl.Series(doses[:, 0]), ml=pl.Series(doses[:, 1]))
    schema = tmp_path / "schema.yaml"
    ifonly.save_schema(cohort.schema, schema)
    table = (
        "table:\n  doses:\n  - {axis: vasopressors, column: vaso, edges: [0, 0.07, 0.16, 0.4]}\n"
        "  - {axis: fluids, column: ml, edges: [0, 50, 150, 500]}\n"
    )
    schema.write_text(schema.read_text() + table)
    command = ("import", tmp_path / "table.csv", "--schema", schema, "--out", tmp_path / "mine")
    for column, factor in (("vaso", 1000), ("ml", 0.001), ("ml", 1000), ("ml", -1)):
        frame.with_columns(pl.col(column) * factor).write_csv(tmp_path / "table.csv")
        result = run(*command)
        assert result.exit_code == 3, (column, factor, result.output)
        assert f"column {column!r}" in result.stderr
        assert not (tmp_path / "mine").exists()
    frame.write_csv(tmp_path / "table.csv")
    assert run(*command).exit_code == 0
    assert np.array_equal(load_cohort(tmp_path / "mine").actions, cohort.actions)

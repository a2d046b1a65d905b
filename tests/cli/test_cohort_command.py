"""`ifonly cohort`: a run from the command line, its figures and its exit codes; stopped and gone on with."""

import json
import signal
from pathlib import Path

import polars as pl
import pytest
from effort import long
from test_processes import on_a_terminal, read_until

import ifonly
from ifonly.cli.frame import ExitCode

SMALL = ("-k", 1, "--workers", 1)


@pytest.fixture
def cohort(run, cohort_folder: Path, model_folder: Path):
    def invoke(*args: object):
        return run("cohort", "--episodes", cohort_folder, "--model", model_folder, *args)

    return invoke


def test_a_run_and_its_figures(cohort, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "k1"
    result = cohort(*SMALL, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    table = ifonly.load_run(out).table()
    assert table.height == document["episodes"] == 40
    assert document["counts"] == {"optimal": 40}
    assert (document["failed"], document["abstained"]) == ({}, 0)
    assert document["results"] == str(out / "results.parquet")
    relative = (pl.col("clipped_outcome") - pl.col("observed_clipped_outcome")) / -pl.col("observed_clipped_outcome")
    assert document["median_improvement"] == pytest.approx(table.select(relative.median()).item())
    stats = table["stats"].struct
    assert document["seconds"]["total"] == pytest.approx(
        stats.field("seconds_bounds").sum() + stats.field("seconds_search").sum()
    )
    again = cohort(*SMALL, "--out", out)
    assert again.exit_code == 0
    words = " ".join(again.stdout.split())
    assert "episodes 40 optimal 40 median improvement" in words
    assert f"written: {out / 'results.parquet'} next: ifonly summarize {out}" in words
    assert ifonly.load_run(out).table().equals(table), "solved again"


def test_what_is_not_believable_is_counted_and_not_in_the_median(
    cohort, run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert cohort(*SMALL, "--out", out).exit_code == 0
    table = ifonly.load_run(out).table()
    doubted = table["improvement"] > table["improvement"].median()

    def doubting(rows: pl.Series) -> None:
        verdict = pl.when(rows).then(pl.lit(ifonly.Verdict.NOT_BELIEVABLE.value)).otherwise("verdict")
        monkeypatch.setattr(ifonly.Run, "table", lambda _: table.with_columns(verdict=verdict))

    doubting(doubted)
    document = json.loads(cohort(*SMALL, "--out", out, "--json").stdout)
    assert document["abstained"] == doubted.sum() > 1
    assert document["median_improvement"] == table.filter(~doubted)["improvement"].median()
    assert document["median_improvement"] < table["improvement"].median()
    shown = " ".join(cohort(*SMALL, "--out", out).stdout.split())
    assert f"{doubted.sum()} answers are not to be believed by the evidence, and are not in the median" in shown
    doubting(pl.Series([True] * table.height))
    document = json.loads(cohort(*SMALL, "--out", out, "--json").stdout)
    assert (document["abstained"], document["median_improvement"]) == (40, None)
    shown = " ".join(cohort(*SMALL, "--out", out).stdout.split())
    assert "median improvement" not in shown
    assert "40 answers are not to be believed" in shown
    monkeypatch.undo()
    assert "not to be believed" not in cohort(*SMALL, "--out", out).stdout
    assert "--no-abstain" in run("summarize", "--help").stdout, "what the sentence names"


def test_info_knows_runs(cohort, run, tmp_path: Path) -> None:
    assert cohort(*SMALL, "--only", "patient-00003", "--out", tmp_path).exit_code == 0
    shown = run("info", tmp_path)
    assert shown.exit_code == 0
    assert "1 episodes; answered: 1 optimal" in shown.stdout
    assert "query: smallest cumulative SOFA, at most 1 change\n" in shown.stdout, "what is usual is not told"
    assert "solver: branch-and-bound\n" in shown.stdout
    document = json.loads(run("info", tmp_path, "--json").stdout)
    assert (document["holds"], document["state"]) == ("run", "finished")
    assert document["query"] == ifonly.load_run(tmp_path).query.to_dict()


def test_info_tells_what_is_unusual_about_a_run_s_query(cohort, run, query, tmp_path: Path) -> None:
    asked = query(max_changes=2, limits={"nodes": 5000}, constraints={"locked": [0]})
    assert cohort("--workers", 1, "--only", "patient-00003", *asked, "--out", tmp_path / "run").exit_code == 0
    (line,) = (line for line in run("info", tmp_path / "run").stdout.splitlines() if line.startswith("query: "))
    assert line.startswith("query: smallest cumulative SOFA, at most 2 changes, constraints (locked ")
    assert line.endswith("limits (nodes 5000)")


def test_another_query_is_refused_unless_forced(cohort, tmp_path: Path) -> None:
    one = ("--only", "patient-00003", "--out", tmp_path)
    assert cohort(*SMALL, *one).exit_code == 0
    refused = cohort("-k", 2, "--workers", 1, *one)
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "query.max_changes: 1 there, 2 now" in refused.stderr
    assert cohort("-k", 2, "--workers", 1, *one, "--force").exit_code == 0
    assert ifonly.load_run(tmp_path).query.max_changes == 2
    assert (
        cohort("-k", 2, "--workers", 1, "--out", tmp_path / "new", "--only", "patient-00003", "--force").exit_code == 0
    )


@pytest.mark.usefixtures("unpainted")
def test_force_after_summarize(cohort, run, tmp_path: Path) -> None:
    one = ("--workers", 1, "--only", "patient-00003", "--out", tmp_path)
    assert cohort("-k", 1, *one).exit_code == 0
    assert run("summarize", tmp_path).exit_code == 0
    assert "the run before" not in cohort("-k", 1, *one).stderr
    forced = cohort("-k", 2, *one, "--force")
    assert forced.exit_code == 0, forced.output
    assert "is about the run before" in " ".join(forced.stderr.split())
    assert ifonly.load_run(tmp_path).query.max_changes == 2
    (tmp_path / "run.json").write_text("")
    damaged = cohort("-k", 2, *one)
    assert damaged.exit_code == ExitCode.BAD_INPUT
    assert "--force" in damaged.stderr
    assert cohort("-k", 2, *one, "--force").exit_code == 0


def test_a_selection_and_all_that_can_be_asked(cohort, query, tmp_path: Path) -> None:
    ids = tmp_path / "ids"
    ids.write_text("patient-00005\n\npatient-00002\n")
    chosen = ("--only", "patient-00007", "--only", "patient-00002", "--only", f"@{ids}")
    rules = {"locked": [0], "forbidden": {"every": [24]}, "max_jump": 1}
    asked = query(maximize="MAP", change_cost=0.5, constraints=rules, limits={"nodes": 500}, solver="greedy")
    result = cohort("-k", "none", "--workers", 1, *chosen, *asked, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    run = ifonly.load_run(tmp_path / "run")
    assert run.table()["episode"].to_list() == ["patient-00002", "patient-00005", "patient-00007"]
    assert run.counts == {"heuristic": 3}
    assert run.query == ifonly.Query(
        ifonly.rewards.Linear({"MAP": 1.0}),
        None,
        constraints=ifonly.Constraints(locked=[0], forbidden={None: [24]}, max_jump=1),
        change_cost=0.5,
        limits=ifonly.Limits(nodes=500),
        solver={"name": "greedy"},
    )
    for id in run.table()["episode"]:
        assert 0 not in [change.step for change in run.result(id).changes]


def test_limits_and_failures_have_their_exit_codes(cohort, query, tmp_path: Path) -> None:
    one = ("--only", "patient-00003", "--only", "patient-00004")
    nodes, beyond = query(limits={"nodes": 0}), query(constraints={"locked": [17]})
    limited = cohort("-k", 2, "--workers", 1, *one, *nodes, "--out", tmp_path / "limited")
    assert limited.exit_code == ExitCode.LIMIT_REACHED
    assert ifonly.load_run(tmp_path / "limited").counts == {"node limit": 2}
    failed = cohort(*SMALL, *one, *beyond, "--out", tmp_path / "failed", "--json")
    assert failed.exit_code == ExitCode.BAD_INPUT
    assert set(json.loads(failed.stdout)["failed"]) == {"patient-00003", "patient-00004"}
    assert json.loads(failed.stdout)["median_improvement"] is None
    assert "step 17" in failed.stderr
    assert "and 1 more" in failed.stderr
    shown = cohort(*SMALL, *one, *beyond, "--out", tmp_path / "failed")
    assert "failed 2" in " ".join(shown.stdout.split())


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--only", "nobody"), 3, "no episode 'nobody'"),
        (("--only", "@nowhere"), 3, "--only @nowhere: cannot be read"),
        (("--only", "@/dev/null"), 3, "names no episode"),
        (("--only", "patient-0003"), 3, "Did you mean 'patient-00003'?"),
        (("--device", "abacus"), 3, "--device abacus: cannot be used here"),
        (("--workers", "many"), 2, "give a whole number from 1, or an address"),
        (("--workers", 0), 2, "--workers"),
        (("--minimize", "pain"), 3, "'pain' is not a dynamic feature"),
        (("--seconds", "inf"), 3, "--seconds inf: must be zero or positive, and finite; leave it out for none"),
        (("--gap", "-1%"), 3, "--gap -1%: must be a share of zero or more, such as 1%"),
        (("--gap", "some"), 3, "gap"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(cohort, tmp_path: Path, args: tuple[object, ...], code: int, message: str) -> None:
    result = cohort(*args, "--out", tmp_path / "run")
    assert result.exit_code == code
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()


@long
def test_ctrl_c_says_how_to_go_on(cohort, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ("-k", 3, "--workers", 1, "--out", out)
    args = ("cohort", "--episodes", cohort_folder, "--model", model_folder, *asked)
    with on_a_terminal(*args, "--chunk", 1, "--json") as (process, terminal):
        assert "Solving" in read_until(terminal, " left")
        process.send_signal(signal.SIGINT)
        drawn = read_until(terminal, "no such word")
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert stdout == ""
    assert "of 40 episodes are finished and kept in" in drawn
    assert "give the same command to go on" in drawn
    assert "Traceback" not in drawn
    kept = ifonly.load_run(out).table()
    assert 0 < kept.height < 40
    assert cohort(*asked).exit_code == 0
    finished = ifonly.load_run(out).table()
    assert finished.height == 40
    assert finished.join(kept.select("episode"), on="episode", how="semi").equals(kept)

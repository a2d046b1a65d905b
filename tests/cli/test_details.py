"""What `solve` tells beside the best sequence: other budgets, a target, other sequences, contributions, a log."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import ifonly
from ifonly.cli.frame import ExitCode
from ifonly.data.store import load_cohort


@pytest.fixture
def solve(run, cohort_folder: Path, model_folder: Path):
    """`ifonly solve` for one episode."""

    def invoke(*options: object, episode: str = "patient-00001"):
        return run("solve", "--episodes", cohort_folder, "--model", model_folder, "--only", episode, *options)

    return invoke


@pytest.fixture(scope="module")
def optima(cohort_folder: Path, model_folder: Path) -> list[ifonly.Result]:
    """The best with at most 0, 1 and 2 changes, by enumeration."""
    episode, model = load_cohort(cohort_folder)["patient-00001"], ifonly.load_model(model_folder).for_search()
    problems = [
        ifonly.Problem.from_episode(episode, model, ifonly.Query(ifonly.minus("SOFA"), budget)) for budget in range(3)
    ]
    return [ifonly.solve(problem, ifonly.Exhaustive()) for problem in problems]


def read(result) -> ifonly.Result:
    assert result.exit_code == 0, result.output
    return ifonly.Result.from_json(result.stdout)


def words_of(text: str) -> str:
    return " ".join(text.replace("│", "").split())


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ({}, "branch-and-bound"),
        ({"constraints": {"locked": [3]}}, "branch-and-bound"),
        ({"constraints": {"max_jump": 3}}, "branch-and-bound"),
        ({"solver": {"name": "branch-and-bound", "alternatives": 2}}, "branch-and-bound"),
        ({"limits": {"memory": 100}}, "branch-and-bound"),
        ({"solver": {"name": "anchor-astar", "samples": 20}}, "anchor-astar"),
    ],
)
def test_the_solver_is_the_query_s(solve, query, entries: dict[str, object], name: str) -> None:
    assert read(solve("-k", 1, *query(**entries), "--json")).provenance.solver["name"] == name


def test_required_changes_are_made(solve, query, cohort_folder: Path) -> None:
    other = (int(load_cohort(cohort_folder)["patient-00001"].actions[2]) + 1) % 25
    assert read(solve("-k", 2, *query(constraints={"required": {2: other}}), "--json")).actions[2] == other


@pytest.mark.parametrize(
    ("options", "entries", "code", "message"),
    [
        ([], {"solver": {"name": "greedy", "alternatives": 2}}, 3, "solver greedy: unknown setting 'alternatives'"),
        ([], {"solver": {"name": "anchor-astar", "within": 1}}, 3, "solver anchor-astar: unknown setting 'within'"),
        (
            ["--all-budgets"],
            {"solver": "exhaustive"},
            2,
            "--all-budgets needs branch-and-bound; the query",
        ),
        (
            ["--target", 1],
            {"solver": "beam"},
            2,
            "--target needs branch-and-bound; the query",
        ),
        ([], {"solver": {"name": "branch-and-bound", "samples": 9}}, 3, "unknown setting 'samples'"),
        ([], {"solver": {"name": "branch-and-bound", "alternatives": 0}}, 3, "alternatives"),
        ([], {"solver": {"name": "branch-and-bound", "within": -1}}, 3, "within"),
        (["--target", "nan"], {}, 2, "--target nan: give a finite number"),
        (["--target", 1], {"change_cost": 0.5}, 2, "leave change_cost out of the query file"),
        ([], {"limits": {"memory": -1}}, 3, "memory: -1"),
    ],
)
def test_what_means_nothing(
    solve, query, options: list[object], entries: dict[str, object], code: int, message: str
) -> None:
    result = solve(*options, *query(**entries))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words_of(result.stderr)


def test_all_budgets(solve, optima: list[ifonly.Result]) -> None:
    frontier = read(solve("-k", 2, "--all-budgets", "--json")).frontier
    assert [budget.outcome for budget in frontier] == pytest.approx([best.outcome for best in optima], abs=1e-9)
    text = solve("-k", 2, "--all-budgets").stdout
    for budget, best in enumerate(optima):
        assert re.search(rf"^ *{budget} +{best.shown[1].value:.6g} +0 ", text, flags=re.MULTILINE)
    for change in optima[1].changes:
        assert f"step {change.step}:" in text
    assert "every number of changes" not in solve("-k", 2).stdout


def test_a_budget_too_small_for_the_rules(solve, query, cohort_folder: Path) -> None:
    other = (int(load_cohort(cohort_folder)["patient-00001"].actions[2]) + 1) % 25
    text = solve("-k", 1, "--all-budgets", *query(constraints={"required": {2: other}})).stdout
    assert re.search(r"^ *0 +- +- +no admissible sequence", text, flags=re.MULTILINE)


def target_of(solve, target: float, *options: object) -> tuple[dict[str, object], str]:
    """What is said about a target, in JSON and in words."""
    command = ("-k", 2, "--target", target, *options)
    return json.loads(solve(*command, "--json").stdout)["target"], solve(*command).stdout


def test_a_target_to_fall_to(solve, optima: list[ifonly.Result]) -> None:
    none, one, two = (best.shown[1].value for best in optima)
    for target, fewest in ((none + 1, 0), ((none + one) / 2, 1), ((one + two) / 2, 2), (two - 1, None)):
        content, text = target_of(solve, target)
        assert content == {"value": target, "fewest_changes": fewest, "proven": True}
        said = f"cumulative SOFA of at most {target:g}: "
        said += {None: "no sequence with at most 2 changes reaches it.", 0: "reached without any change"}.get(
            fewest, f"reached with {fewest} change"
        )
        assert said in text
    content, text = target_of(solve, (none + one) / 2)
    step = optima[1].changes[0].step
    assert f"reached with 1 change ({one:.6g}), and with no fewer.\n  step {step} (hour {4 * step}): " in text


def test_a_target_to_rise_to(solve) -> None:
    frontier = read(solve("-k", 2, "--maximize", "MAP", "--all-budgets", "--json")).frontier
    values = [budget.outcome for budget in frontier]
    content, text = target_of(solve, (values[1] + values[2]) / 2, "--maximize", "MAP")
    assert content["fewest_changes"] == 2
    assert "cumulative MAP of at least" in text


def test_a_target_that_the_search_did_not_decide(solve, query, optima: list[ifonly.Result]) -> None:
    content, text = target_of(solve, optima[2].shown[1].value + 1e-3, *query(limits={"nodes": 0}))
    assert content["proven"] is False
    assert "the search ended before that was decided" in text


def best(**settings: object) -> dict[str, object]:
    return {"name": "branch-and-bound", **settings}


def test_alternatives(solve, query, optima: list[ifonly.Result]) -> None:
    found = read(solve("-k", 1, *query(solver=best(alternatives=3)), "--json"))
    outcomes = [one.outcome for one in found.alternatives]
    assert len(outcomes) == 3
    assert outcomes == sorted(outcomes, reverse=True)
    assert outcomes[0] == pytest.approx(optima[1].outcome)
    text = solve("-k", 1, *query(solver=best(alternatives=3))).stdout
    assert "patient-00001, the 3 best sequences:" in text
    for rank, one in enumerate(found.alternatives, start=1):
        assert re.search(rf"^ *{rank} +{-one.outcome:.6g} ", text, flags=re.MULTILINE)
        (step,) = np.flatnonzero(one.actions != found.observed_actions)
        change = found.schema.actions.describe_change(int(found.observed_actions[step]), int(one.actions[step]))
        assert change.split(", ")[0] in text


def test_alternatives_within_a_distance(solve, query) -> None:
    ranked = read(solve("-k", 1, *query(solver=best(alternatives=20)), "--json")).alternatives
    distance = ranked[0].outcome - (ranked[4].outcome + ranked[5].outcome) / 2
    near = read(solve("-k", 1, *query(solver=best(within=distance)), "--json")).alternatives
    assert [one.outcome for one in near] == pytest.approx([one.outcome for one in ranked[:5]])
    assert "the 2 best sequences (there are more as close):" in (
        solve("-k", 1, *query(solver=best(within=distance, alternatives=2))).stdout
    )


def test_alternatives_of_a_search_that_ended_early_are_not_called_the_best(solve, query) -> None:
    result = solve("-k", 2, *query(solver=best(alternatives=3), limits={"nodes": 1}))
    assert result.exit_code == ExitCode.LIMIT_REACHED
    assert "found (others as good may exist):" in result.stdout


def test_contributions(solve, tmp_path: Path, run, cohort_folder: Path, model_folder: Path) -> None:
    out = tmp_path / "result.json"
    shown = solve("-k", 2, "--contributions", "--out", out)
    content = json.loads(out.read_text())
    shares = content.pop("contributions")["changes"]
    found = ifonly.Result.from_dict(content)
    assert [share["step"] for share in shares] == [change.step for change in found.changes]
    assert sum(share["share"] for share in shares) == pytest.approx(found.improvement)
    for share, change in zip(shares, found.changes, strict=True):
        figures = " +".join(f"{share[name]:.4g}" for name in ("lost_without", "alone", "share"))
        assert re.search(rf"step {change.step}: .* {figures}", shown.stdout)
    assert re.search(rf"^together +{found.improvement:.4g}", shown.stdout, flags=re.MULTILINE)
    assert "contributions" not in json.loads(solve("-k", 1, "--json").stdout)
    assert run("verify", out, "--episodes", cohort_folder, "--model", model_folder).exit_code == 0


def test_too_many_changes_to_share_out_keep_their_result(solve, query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.search.contributions.MOST_CHANGES", 1)
    result = solve("-k", 2, *query(solver="greedy"), "--contributions", "--json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "2 changes have 2^2 subsets" in result.stderr
    assert len(ifonly.Result.from_json(result.stdout).changes) == 2


def test_details_of_several_episodes_name_them(run, cohort_folder: Path, model_folder: Path) -> None:
    ids = ("--only", "patient-00001", "--only", "patient-00002")
    options = ("-k", 1, "--all-budgets", "--target", 30, "--contributions")
    text = run("solve", "--episodes", cohort_folder, "--model", model_folder, *ids, *options).stdout
    for id in ids[1::2]:
        for what in (
            "the best for every number of changes:",
            "cumulative SOFA of at most 30:",
            "what each change gains",
        ):
            assert f"{id}, {what}" in text


def test_a_limit_on_memory_is_kept_and_harmless(solve, query, optima: list[ifonly.Result]) -> None:
    found = read(solve("-k", 2, *query(limits={"memory": 0}), "--json"))
    assert found.query.limits.memory == 0
    assert found.outcome == pytest.approx(optima[2].outcome)


@pytest.mark.parametrize("solver", ["branch-and-bound", "anchor-astar"])
def test_the_log_is_told_on_stderr(solve, query, solver: str) -> None:
    result = solve("-k", 2, *query(solver=solver), "--log", "--json")
    assert read(result).status is ifonly.Status.OPTIMAL
    subject, header, *lines = result.stderr.splitlines()
    assert subject == "Searching patient-00001"
    assert header.split() == ["seconds", "nodes", "open", "incumbent", "bound", "gap"]
    *lines, last = lines
    assert lines
    assert all(len(line.split()) == 6 for line in lines)
    assert last.startswith("ended after ")

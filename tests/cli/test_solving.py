"""`solve` and `verify`."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ifonly
from ifonly.cli import solve as solving
from ifonly.cli.frame import ExitCode
from ifonly.cli.solve import ask
from ifonly.data import Episode
from ifonly.data.store import load_cohort
from ifonly.errors import InputError, ReplayError
from ifonly.progress import silent
from ifonly.query import Limits
from ifonly.rewards import ActionCost, Linear
from ifonly.runs import task
from ifonly.runs.task import Task
from ifonly.text.results import statement


@pytest.fixture
def solve(run, cohort_folder: Path, model_folder: Path):
    """`ifonly solve` for one episode, by branch and bound unless a query file says otherwise."""

    def invoke(*options: object, episode: str = "patient-00001"):
        return run("solve", "--episodes", cohort_folder, "--model", model_folder, "--only", episode, *options)

    return invoke


def read(result) -> ifonly.Result:
    return ifonly.Result.from_json(result.stdout)


def test_the_answer_is_the_library_s(solve, cohort_folder: Path, model_folder: Path) -> None:
    shown = solve("-k", 2, "--json")
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == ""
    episode, model = load_cohort(cohort_folder)["patient-00001"], ifonly.load_model(model_folder)
    problem = ifonly.Problem.from_episode(episode, model, ifonly.Query(ifonly.minus("SOFA"), 2))
    expected = ifonly.solve(problem, ifonly.Exhaustive())
    assert read(shown).status is ifonly.Status.OPTIMAL
    assert read(shown).outcome == pytest.approx(expected.outcome, abs=1e-9)


def test_the_answer_in_words(solve) -> None:
    result, document = solve("-k", 2), read(solve("-k", 2, "--json"))
    assert "patient-00001: optimal | 2 changes (at most 2) | cumulative SOFA" in result.stdout
    assert statement(document) in result.stdout
    describe = document.schema.actions.describe_change
    for change in document.changes:
        words = describe(change.observed, change.counterfactual)
        assert f"step {change.step} (hour {4 * change.step}): {words}" in result.stdout
    assert "patient-00001, evidence: The model was not checked" in result.stdout


@pytest.mark.parametrize("name", ["exhaustive", "greedy", "beam", "top", "random"])
def test_every_solver(solve, query, name: str) -> None:
    optimum = read(solve("-k", 2, "--json")).outcome
    result = solve("-k", 2, *query(solver=name), "--json")
    assert result.exit_code == 0
    assert read(result).observed_outcome <= read(result).outcome <= optimum + 1e-9
    assert read(result).status is (ifonly.Status.OPTIMAL if name == "exhaustive" else ifonly.Status.HEURISTIC)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"samples": 40}, "MonteCarlo(samples=40, size=None, weighting='lipschitz')"),
        ({"anchors": 90}, "MonteCarlo(samples=None, size=90, weighting='lipschitz')"),
        ({"samples": 40, "strategy": "uniform"}, "MonteCarlo(samples=40, size=None, weighting='uniform')"),
        ({"strategy": "facility", "anchors": 30}, "FacilityLocation(size=30, pool=[240 states, "),
    ],
)
def test_anchor_strategies(solve, query, given: dict[str, object], settings: str) -> None:
    result = solve("-k", 1, *query(solver={"name": "anchor-astar", **given}), "--json")
    assert result.exit_code == 0, result.output
    assert read(result).provenance.solver["anchors"].startswith(settings)
    exhaustive = read(solve("-k", 1, *query(solver="exhaustive"), "--json"))
    assert read(result).outcome == pytest.approx(exhaustive.outcome)


def test_shared_anchors_and_seed(solve, query) -> None:
    asked = query(solver={"name": "anchor-astar", "samples": 10, "shared": True, "seed": 5})
    solver = read(solve("-k", 1, *asked, "--json")).provenance.solver
    assert (solver["shared"], solver["seed"]) == (True, 5)


def test_features_to_improve(solve, query) -> None:
    lowest = read(solve("-k", 1, "--minimize", "MAP", "--json"))
    highest = read(solve("-k", 1, "--maximize", "MAP", "--json"))
    assert lowest.shown[1].value <= lowest.shown[0].value <= highest.shown[1].value
    assert [lowest.shown[1].label, highest.shown[1].label] == ["cumulative MAP", "cumulative MAP"]


def test_options_count_before_the_file(solve, query) -> None:
    file = query(minimize="SOFA", max_changes=2, limits={"seconds": 50, "nodes": 10**6}, sensitivity=True)
    kept = read(solve(*file, "--json")).query
    assert (kept.max_changes, kept.limits.seconds, kept.reward) == (2, 50, ifonly.minus("SOFA"))
    other = read(solve(*file, "-k", 1, "--maximize", "MAP", "--seconds", 40, "--json")).query
    assert (other.max_changes, other.limits, other.reward) == (1, ifonly.Limits(40.0, 10**6), Linear({"MAP": 1.0}))
    assert other.sensitivity is True
    granted = read(solve(*file, "--gap", "2%", "--json")).query
    assert granted.limits == ifonly.Limits(50.0, 10**6, "2%")


def test_a_gap_ends_a_search(solve) -> None:
    exact, close = read(solve("-k", 3, "--json")), read(solve("-k", 3, "--gap", "90%", "--json"))
    assert exact.status.value == "optimal"
    assert close.status.value in ("optimal", "gap reached")
    assert close.outcome <= exact.outcome <= close.upper_bound + 1e-9
    assert close.upper_bound - close.outcome <= 0.9 * close.improvement + 1e-9


def test_locked_steps_stay(solve, query) -> None:
    free = read(solve("-k", 6, *query(solver="greedy"), "--json"))
    changed = [change.step for change in free.changes]
    locked = read(solve("-k", 6, *query(solver="greedy", constraints={"locked": changed[:2]}), "--json"))
    assert len(changed) > 2
    assert not {change.step for change in locked.changes} & set(changed[:2])
    assert locked.outcome < free.outcome


def test_the_last_action_is_fixed(solve, query) -> None:
    result = read(solve("-k", 6, *query(solver="greedy", constraints={"last_action_fixed": True}), "--json"))
    assert result.actions[-1] == result.observed_actions[-1]
    assert result.query.constraints.last_action_fixed


@pytest.mark.parametrize(("limits", "status"), [({"nodes": 1}, "node limit"), ({"seconds": 0}, "time limit")])
def test_a_limit_gives_a_bracket_and_code_4(
    solve, query, tmp_path: Path, limits: dict[str, float], status: str
) -> None:
    result = solve("-k", 2, *query(limits=limits), "--out", tmp_path / "r.json", "--json")
    assert result.exit_code == ExitCode.LIMIT_REACHED
    assert read(result).status.value == status
    optimum = read(solve("-k", 2, *query(solver="exhaustive"), "--json")).outcome
    assert read(result).outcome <= optimum <= read(result).upper_bound
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(result.stdout)


def test_a_gap_that_is_reached_is_success(solve, query) -> None:
    result = solve("-k", 3, *query(limits={"gap": 1000}), "--json")
    assert result.exit_code == 0
    assert read(result).status in (ifonly.Status.GAP_REACHED, ifonly.Status.OPTIMAL)


def test_several_episodes_are_a_list_and_a_table(run, answers: Path) -> None:
    content = json.loads(answers.read_text())
    assert [ifonly.Result.from_dict(item).episode for item in content] == ["patient-00001", "patient-00002"]
    table = run("info", answers).stdout
    assert "patient-00001" in table
    assert "patient-00002" in table
    assert json.loads(run("info", answers, "--json").stdout) == {"holds": "results", "results": content}


def test_plots(run, solve, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "course.png"
    assert solve("-k", 1, "--plot", plot).exit_code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert solve("-k", 1, "--plot", plot).exit_code == 3
    assert solve("-k", 1, "--plot", plot, "--force").exit_code == 0
    both = ("--only", "patient-00001", "--only", "patient-00002", "-k", 1)
    result = run("solve", "--episodes", cohort_folder, "--model", model_folder, *both, "--plot", plot)
    assert result.exit_code == 0
    assert sorted(p.name for p in plot.parent.iterdir()) == [
        "course-patient-00001.png",
        "course-patient-00002.png",
        "course.png",
    ]


def test_ids_from_a_file(run, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("patient-00002\n\npatient-00003\n")
    asked = ("--episodes", cohort_folder, "--model", model_folder, "-k", 1, "--only", "patient-00002")
    found = json.loads(run("solve", *asked, "--only", f"@{tmp_path / 'ids'}", "--json").stdout)
    assert [item["episode"] for item in found] == ["patient-00002", "patient-00003"]


def test_interrupted_between_episodes_keeps_what_is_known(cohort_folder: Path, model_folder: Path) -> None:
    cohort, model = load_cohort(cohort_folder), ifonly.load_model(model_folder).for_search()
    task = Task(model, ifonly.Query(ifonly.minus("SOFA"), 1), ifonly.Greedy())

    class Impatient:
        """Bars that are interrupted when the second episode begins."""

        def about(self, subject: str, stage: str = "search"):
            if subject == "patient-00002":
                raise KeyboardInterrupt
            return silent

    episodes = [cohort["patient-00001"], cohort["patient-00002"], cohort["patient-00003"]]
    found = ask(task, episodes, shown=Impatient())
    assert [result.episode for result in found.results] == ["patient-00001"]
    assert found.missing == ("patient-00002", "patient-00003")
    assert found.exit_code == ExitCode.INTERRUPTED


class Unwatched:
    """Nobody looks on."""

    def about(self, subject: str, stage: str = "search"):
        return silent


@pytest.mark.parametrize("limits", [Limits(), Limits(nodes=10**6)], ids=["together", "alone"])
@pytest.mark.parametrize("reason", [None, "there is no prior"])
def test_solve_and_a_run_give_the_same_result(
    cohort_folder: Path,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    reason: str | None,
) -> None:
    """Also where the answer cannot be examined, which says so and is an answer all the same."""

    def fail(*_: object, **__: object) -> None:
        raise InputError(reason)

    if reason is not None:
        for examination in ("examine", "examine_all"):  # of one answer, and of many together
            monkeypatch.setattr(f"ifonly.runs.task.{examination}", fail)
    cohort, model = load_cohort(cohort_folder), ifonly.load_model(model_folder).for_search()
    query = ifonly.Query(ifonly.minus("SOFA"), 1, sensitivity=True, limits=limits)
    found = ask(Task(model, query, ifonly.BranchAndBound()), [cohort[0]], shown=Unwatched())
    settings = ifonly.RunSettings(episodes=[cohort[0].id], workers=1)
    run = ifonly.solve_cohort(cohort, model, query, out=tmp_path / "run", settings=settings)
    alone, kept = (
        dataclasses.replace(one, stats=dataclasses.replace(one.stats, seconds_bounds=0.0, seconds_search=0.0))
        for one in (found.results[0], run.result(cohort[0].id))
    )
    assert found.failed == {}
    assert alone.to_dict() == kept.to_dict()
    assert [str(failure.reason) for failure in alone.evidence.failures] == [reason] * (reason is not None)


def test_episodes_without_a_result_are_named(
    run, cohort_folder: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(task, episodes, **options):
        answers = ask(task, episodes[:1], **options)
        return dataclasses.replace(answers, interrupted=True, missing=tuple(episode.id for episode in episodes[1:]))

    monkeypatch.setattr(solving, "ask", interrupted)
    ids = [part for number in (1, 7, 8) for part in ("--only", f"patient-0000{number}")]
    command = ("solve", "--episodes", cohort_folder, "--model", model_folder, *ids, "-k", 1, "--json")
    result = run(*command)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert result.stderr == "interrupted: not solved: patient-00007, patient-00008\n"
    assert [item["episode"] for item in json.loads(result.stdout)] == ["patient-00001"]


def test_weights_and_costs(solve, query, cohort_folder: Path, model_folder: Path) -> None:
    cohort, model = load_cohort(cohort_folder), ifonly.load_model(model_folder)
    label = cohort.schema.actions.labels[2]
    asked = query(weights={"SOFA": -1, "MAP": 0.05}, costs={label: 0.5, 24: 1e3})
    found = read(solve("-k", 1, *asked, "--json"))
    reward = Linear({"SOFA": -1.0, "MAP": 0.05}) + ActionCost({label: 0.5, 24: 1000.0})
    problem = ifonly.Problem.from_episode(cohort["patient-00001"], model, ifonly.Query(reward, 1))
    assert found.outcome == pytest.approx(ifonly.solve(problem, ifonly.Exhaustive()).outcome)
    assert found.query.reward == reward
    assert read(solve("-k", 1, *query(weights={"MAP": 1}), "--json")).shown[0].feature == "MAP"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"weights": "SOFA"}, "must be a mapping from features to numbers"),
        ({"weights": {"SOFA": "much"}}, "is not a finite number"),
        ({"weights": {"SOFA": float("inf")}}, "is not a finite number"),
        ({"weights": {"SOFA": 1}, "minimize": "MAP"}, "say what counts as better, once"),
        ({"weights": {"age": 1}}, "not a dynamic feature"),
        ({"costs": {25: 1}}, "action 25 is unknown"),
        ({"costs": {"aspirin": 1}}, "no action 'aspirin'"),
        ({"minimize": ""}, "not a dynamic feature"),
        ({"minimise": "SOFA"}, "Did you mean 'minimize'?"),
        ({"max_change": 2}, "Did you mean 'max_changes'?"),
        ({"minimize": "sofa"}, "Did you mean 'SOFA'?"),
        ({"costs": {"vasopressors 0.04 mcg/kg/min; fluids 0 mL/4 h": 1}}, "Did you mean 'vasopressors 0.04"),
        ({"min_support": 0.1}, "needs --behaviour FOLDER"),
        ({"each_refit": True}, "no refits"),
        ({"objective": "worst"}, "no refits"),
        ({"objective": "best"}, "choose 'mean', 'worst'"),
        ({"limits": {"gap": -1}}, "gap: -1"),
        ({"change_cost": -1}, "yaml: change_cost: -1: must not be negative"),
        ({"solver": {"name": "greedy", "samples": 20}}, "unknown setting 'samples'"),
        ({"solver": "quantum"}, "solver 'quantum' is unknown"),
        ({"solver": {"name": "anchor-astar", "samples": 20, "anchors": 20}}, "exclude each other"),
    ],
)
def test_wrong_entries(solve, query, entries: dict[str, object], message: str) -> None:
    result = solve(*query(**entries))
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert message in " ".join(result.stderr.split())


def test_rules(solve, query, cohort_folder: Path, model_folder: Path) -> None:
    cohort = load_cohort(cohort_folder)
    episode, labels = cohort["patient-00001"], cohort.schema.actions.labels
    pinned = int(episode.actions[2] + 1) % len(labels)
    entries = {
        "locked": [4],
        "forbidden": {"every": [24], 0: [labels[(episode.actions[0] + 5) % 25]]},
        "required": {2: labels[pinned]},
        "choices": {1: [3, 4]},
        "max_shift": {"fluids": 3},
        "max_jump": 3,
        "last_action_fixed": True,
    }
    found = read(solve("-k", 2, *query(constraints=entries, change_cost=0.25, solver="exhaustive"), "--json"))
    rules = ifonly.Constraints.from_dict(entries)
    assert found.query.constraints == rules
    assert found.query.change_cost == 0.25
    problem = ifonly.Problem.from_episode(
        episode,
        ifonly.load_model(model_folder),
        ifonly.Query(ifonly.minus("SOFA"), 2, constraints=rules, change_cost=0.25),
    )
    assert found.outcome == pytest.approx(ifonly.solve(problem, ifonly.Exhaustive()).outcome)
    assert found.actions[2] == pinned


def test_no_limit_on_changes(solve, query) -> None:
    result = read(solve("-k", "none", *query(solver="greedy"), "--json"))
    assert result.max_changes == len(result.actions)
    assert result.query.max_changes is None


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"required": {"last": 7}}, "must be a whole number from 0"),
        ({"required": {2: "aspirin"}}, "no action 'aspirin'"),
        ({"required": {9: 7}}, "there is no step 9"),
        ({"required": {2: 7}, "locked": [2]}, "step 2 is locked and has a required action"),
        ({"forbidden": {"every": ["aspirin"]}}, "no action 'aspirin'"),
        ({"forbidden": {2: ["aspirin"]}}, "no action 'aspirin'"),
        ({"choices": {2: [1], "2": [2]}}, "names a step twice"),
        ({"choices": {2: ["aspirin"]}}, "no action 'aspirin'"),
        ({"choices": {2: 1}}, "must be a list"),
        ({"choices": {6: [1]}}, "numbered 0 to 5"),
        ({"locked": [6]}, "numbered 0 to 5"),
        ({"max_shift": "much"}, "must be a whole number of levels"),
        ({"max_shift": -1}, "must be a whole number of levels"),
        ({"max_jump": {"oxygen": 2}}, "there is no axis 'oxygen'"),
        ({"max_jump": {"fluid": 2}}, "Did you mean 'fluids'?"),
    ],
)
def test_wrong_rules(solve, query, entries: dict[str, object], message: str) -> None:
    result = solve(*query(constraints=entries))
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("solver", ["branch-and-bound", "anchor-astar", "greedy"])
def test_rules_that_look_back_are_kept_by_every_solver(solve, query, solver: str) -> None:
    pace = {"changes": 1, "within": "8 hours"}
    result = solve("-k", 3, *query(constraints={"max_jump": 1, "pace": pace}, solver=solver), "--json")
    assert result.exit_code == ExitCode.DONE, result.output
    steps = [change.step for change in read(result).changes]
    assert steps
    assert all(after - before >= 2 for before, after in pairwise(steps))


@pytest.mark.parametrize("changes", ["-1", "few"])
def test_wrong_numbers_of_changes(solve, changes: str) -> None:
    result = solve("-k", changes)
    assert result.exit_code == ExitCode.USAGE
    assert "give a whole number from 0, or none" in " ".join(result.stderr.replace("│", "").split())


def test_a_first_query_file_asks_what_it_says(run, solve, cohort_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "query.yaml"
    assert run("query", file, "--episodes", cohort_folder).exit_code == 0
    assert run("query", file).exit_code == ExitCode.BAD_INPUT, "it would be replaced"
    text = file.read_text()
    for word in (*ifonly.Query.__dataclass_fields__, *ifonly.Constraints.__dataclass_fields__, "weights", "costs"):
        assert word in text or word in ("reward",), word
    assert ifonly.Query.load(file) == ifonly.Query(ifonly.minus("SOFA"), 3)
    assert read(solve("--query", file, "-k", 1, "--json")).max_changes == 1


def test_a_first_query_file_without_a_cohort_names_no_feature(run, solve, tmp_path: Path) -> None:
    file = tmp_path / "query.yaml"
    written = run("query", file)
    assert written.exit_code == 0
    assert "fill in what counts as better" in written.stdout
    assert "SOFA" not in file.read_text()
    assert "\n# minimize: FEATURE\n" in file.read_text()
    file.write_text(file.read_text().replace("# minimize: FEATURE", "minimize: MAP"))
    assert ifonly.Query.load(file) == ifonly.Query(ifonly.minus("MAP"), 3)


def test_an_example_of_an_episode_is_given_where_none_is_named(run, cohort_folder: Path, model_folder: Path) -> None:
    refused = run("solve", "--episodes", cohort_folder, "--model", model_folder)
    assert refused.exit_code == ExitCode.USAGE
    words = " ".join(refused.stderr.replace("│", " ").split())
    assert f"such as --only {load_cohort(cohort_folder).ids[0]} (the first of 40" in words


def test_verify(run, answers: Path, cohort_folder: Path, model_folder: Path) -> None:
    command = ("verify", answers, "--episodes", cohort_folder, "--model", model_folder)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "episode patient-00001: optimum verified" in result.stdout
    content = json.loads(run(*command, "--json").stdout)
    assert [(item["episode"], item["verified"]) for item in content] == [
        ("patient-00001", True),
        ("patient-00002", True),
    ]
    for item in content:
        assert {check["claim"] for check in item["checks"]} >= {"episode", "outcome", "changes"}
        assert all(check.keys() == {"claim", "holds", "finding"} and check["holds"] for check in item["checks"])


def test_verify_finds_a_false_claim(
    run, answers: Path, cohort_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    content = json.loads(answers.read_text())
    content[1]["outcome"] += 0.5
    content[1]["upper_bound"] += 0.5
    (tmp_path / "forged.json").write_text(json.dumps(content))
    command = ("verify", tmp_path / "forged.json", "--episodes", cohort_folder, "--model", model_folder)
    result = run(*command)
    assert result.exit_code == ExitCode.NOT_VERIFIED
    assert "patient-00001: optimum verified" in result.stdout
    assert "does not hold" in result.stdout
    assert [item["verified"] for item in json.loads(run(*command, "--json").stdout)] == [True, False]


def test_the_default_reward_needs_a_severity_score(run, tmp_path: Path) -> None:
    schema = ifonly.Schema(
        (ifonly.Feature("pain", "dynamic"), ifonly.Feature("mood", "dynamic")),
        ifonly.ActionSpace.categories(["wait", "treat"]),
    )
    states = np.random.default_rng(0).normal(size=(3, 4, 2))
    episodes = [ifonly.Episode(f"e{i}", schema, states=states[i], actions=[0, 1, 0, 1]) for i in range(3)]
    ifonly.save_cohort(ifonly.Cohort.from_episodes(episodes), tmp_path / "c")
    assert (
        run(
            "fit",
            "--recipe",
            "paper",
            "--episodes",
            tmp_path / "c",
            "--out",
            tmp_path / "m",
            "--epochs",
            1,
            "--hidden",
            2,
        ).exit_code
        == 0
    )
    command = ("solve", "--episodes", tmp_path / "c", "--model", tmp_path / "m", "--only", "e1")
    result = run(*command)
    assert result.exit_code == 2
    assert "pain, mood" in " ".join(result.stderr.replace("│", "").split())
    assert run(*command, "--minimize", "pain").exit_code == 0


def test_an_episode_that_fails_costs_no_other(
    run, cohort_folder: Path, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = load_cohort(cohort_folder).ids[:3]
    whole = task.build_problem

    def failing(episode: Episode, *args: object, **options: object) -> Any:
        if episode.id == ids[1]:
            raise ReplayError(f"episode {episode.id!r}: cannot be replayed.")
        return whole(episode, *args, **options)

    monkeypatch.setattr(task, "build_problem", failing)
    out = tmp_path / "results.json"
    wanted = [part for id in ids for part in ("--only", id)]
    sources = ["--episodes", cohort_folder, "--model", model_folder, "-k", 1]
    result = run("solve", *sources, *wanted, "--out", out)
    assert result.exit_code == 3
    assert "cannot be replayed" in result.stderr
    assert [item["episode"] for item in json.loads(out.read_text())] == [ids[0], ids[2]]
    result = run("solve", *sources, "--only", ids[1])
    assert result.exit_code == 3
    assert "cannot be replayed" in result.stderr


def test_verify_says_whether_the_proof_was_repeated(run, solve, cohort_folder: Path, model_folder: Path) -> None:
    out = cohort_folder.parent / "proof.json"
    assert solve("-k", 1, "--out", out, "--force").exit_code == 0
    sources = ["--episodes", cohort_folder, "--model", model_folder, "--json"]
    for options, repeated in (([], True), (["--enumerate-up-to", 1], False)):
        result = run("verify", out, *sources, *options)
        assert result.exit_code == 0
        assert json.loads(result.stdout)[0]["proof_repeated"] is repeated


def test_a_proof_is_logged_and_checked(run, solve, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    out, log = tmp_path / "result.json", tmp_path / "proof.npz"
    solved = solve("-k", 2, "--out", out, "--proof", log)
    assert solved.exit_code == 0, solved.output
    assert str(log) in solved.stdout.replace("\n", "")
    assert solve("-k", 2, "--proof", log).exit_code != 0, "what stands there already is kept"

    alone = run("verify", "--proof", log)
    assert alone.exit_code == 0, alone.output
    assert "episode patient-00001: the proof holds" in alone.stdout
    sources = ("--episodes", cohort_folder, "--model", model_folder)
    checked = run("verify", out, *sources, "--proof", log, "--enumerate-up-to", 1)
    assert checked.exit_code == 0, checked.output
    assert "optimum verified, by checking a log of the search" in checked.stdout
    document = json.loads(run("verify", "--proof", log, "--json").stdout)[0]
    assert (document["verified"], document["proof_repeated"]) == (True, True)


def test_a_proof_of_something_else_is_refused(
    run, solve, cohort_folder: Path, model_folder: Path, tmp_path: Path
) -> None:
    log, out, sources = tmp_path / "proof.npz", tmp_path / "one.json", ("--episodes", cohort_folder)
    assert solve("-k", 1, "--proof", log).exit_code == 0
    assert solve("-k", 2, "--out", out).exit_code == 0
    other = run("verify", out, *sources, "--model", model_folder, "--proof", log)
    assert other.exit_code == ExitCode.NOT_VERIFIED
    assert "log: question: another one: max_changes" in other.stdout
    log.write_bytes(log.read_bytes()[:-500])
    cut = run("verify", "--proof", log)
    assert cut.exit_code == ExitCode.BAD_INPUT
    assert "cut off or damaged" in " ".join(cut.stderr.split())
    for asked in ((), (out,), (out, *sources)):
        assert run("verify", *asked).exit_code == ExitCode.USAGE
